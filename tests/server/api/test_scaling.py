"""How a campaign's layouts scale, over REST."""

from __future__ import annotations

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.recommendation.recommendation import recommend
from autotune.resolution import strategy_of
from autotune.schemas.campaigns import Campaign
from autotune.schemas.scaling import ScalingStudy
from server.figures.scaling import measured_steps
from server.store import Store
from server.store.trials import all_trials
from tests.server.asking import created
from tests.server.entitled import entitled


def test_what_trials_measured_is_said_and_the_rest_predicted(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    store: Store = app.state.store
    with store.session() as session:
        trials = all_trials(session, campaign.id)
    recommendation = recommend(campaign, trials)
    assert recommendation is not None
    steps = measured_steps(trials)
    client = entitled(app)
    address = f"/api/v1/campaigns/{campaign.id}/scaling"
    study = ScalingStudy.model_validate(client.get(address).json())
    assert study.strategy == recommendation.best.strategy
    assert (study.campaign_id, study.simulated) == (campaign.id, True)
    points = [point for series in study.series for point in series.points]
    measured = [point for point in points if point.measured]
    assert measured
    assert len(measured) < len(points)
    for point in measured:
        step = strategy_of(point.strategy)
        assert point.iteration_time_s == pytest.approx(steps[step])
    wanted = client.get(address, params={"rank": 2, "nodes": "4,8"}).json()
    assert {point["num_nodes"] for point in wanted["series"][1]["points"]} <= {4, 8}
    assert wanted["strategy"] == recommendation.runners_up[0].strategy.model_dump()
    refused = client.get(address, params={"rank": 99})
    assert refused.status_code == 422


def test_a_campaign_without_a_result_scales_nowhere(client: TestClient, store: Store) -> None:
    campaign = created(store)
    answer = client.get(f"/api/v1/campaigns/{campaign.id}/scaling")
    assert answer.status_code == 404
    assert "no trial has succeeded" in answer.json()["detail"]
