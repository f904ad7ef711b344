"""Why a campaign's best won, as the service tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI

from autotune.schemas.campaigns import Campaign
from autotune.schemas.explanations import Explanation
from server.api.campaign_cache import CampaignCache
from server.store import NotFound, Store
from tests.server.asking import created, with_trials
from tests.server.entitled import entitled


def test_a_finished_campaign_is_explained(finished: tuple[FastAPI, Campaign]) -> None:
    app, campaign = finished
    client = entitled(app)
    at = f"/api/v1/campaigns/{campaign.id}"
    found = Explanation.model_validate(client.get(f"{at}/explanation").json())
    best = client.get(f"{at}/recommendation").json()["best"]
    assert found.simulated
    assert found.strategies[0].role == "winner"
    assert found.strategies[0].strategy.model_dump() == best["strategy"]
    assert found.strategies[0].iteration_time_s == best["metrics"]["iteration_time_s"]
    assert "baseline" in [each.role for each in found.strategies]
    assert 2 <= len(found.sentences) <= 3
    assert client.get("/api/v1/campaigns/99999/explanation").status_code == 404


def test_it_is_worked_out_once_until_something_happens(
    finished: tuple[FastAPI, Campaign],
) -> None:
    store: Store = finished[0].state.store
    campaign = created(store)
    campaigns = CampaignCache(store)
    event = campaigns.last_event(campaign.id)
    assert campaigns.written_explanation(campaign.id, event) is None
    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(campaigns.explanation, [campaign.id] * 8, [event] * 8)
    assert all(other is first for other in others)
    assert campaigns.written_explanation(campaign.id, event) == first
    with_trials(store, campaign, 1)
    later = campaigns.last_event(campaign.id)
    assert campaigns.explanation(campaign.id, later) is not first
    with pytest.raises(NotFound):
        campaigns.last_event(99999)
