"""What a finished campaign recommends, the files, why, how it stands in its space and scales."""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import delete

from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import Campaign
from autotune.schemas.explanations import Explanation
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.scaling import ScalingSeries
from search_spaces.fields import as_table
from server.api.campaign_cache import CampaignCache
from server.app import create_app
from server.cache import Cache
from server.figures.scaling import measured_steps
from server.store import NotFound, Store
from server.store.tables import OutcomeRow
from server.store.trials import all_trials
from tests.pace import QUICK
from tests.server.asking import created, with_trials
from tests.server.entitled import entitled
from tests.server.fits import noted_fits

FILES = {
    "benchmark.sbatch",
    "benchmark_rank.sh",
    "train.sbatch",
    "train_rank.sh",
}


@pytest.fixture
def client(finished: tuple[FastAPI, Campaign]) -> TestClient:
    return entitled(finished[0])


@pytest.fixture
def at(finished: tuple[FastAPI, Campaign]) -> str:
    return f"/api/v1/campaigns/{finished[1].id}"


def test_a_finished_campaign_has_a_recommendation(client: TestClient, at: str) -> None:
    found = Recommendation.model_validate(client.get(f"{at}/recommendation").json())
    assert not found.provisional
    assert found.simulated
    assert found.best.confirmed
    assert set(found.artefacts) == FILES
    for roomy in (True, False):
        others = [each for each in found.runners_up if each.keeps_headroom is roomy]
        rates = [each.metrics.tokens_per_s for each in others if not each.confirmed]
        assert rates == sorted(rates, reverse=True)


def test_a_campaign_without_a_successful_trial_has_none(
    client: TestClient, finished: tuple[FastAPI, Campaign]
) -> None:
    store: Store = finished[0].state.store
    other = created(store)
    for path in ("recommendation", "artefacts/train.sbatch", "artefacts.zip"):
        answer = client.get(f"/api/v1/campaigns/{other.id}/{path}")
        assert answer.status_code == 404
        assert "no trial has succeeded" in answer.json()["detail"]


def test_files_are_downloaded_by_name_or_all_in_an_archive(client: TestClient, at: str) -> None:
    found = client.get(f"{at}/artefacts.zip")
    assert found.headers["Content-Type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(found.content))
    names = {name.rpartition("/")[2]: name for name in archive.namelist()}
    assert set(names) == FILES
    for name, path in names.items():
        answer = client.get(f"{at}/artefacts/{name}")
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert name in answer.headers["Content-Disposition"]
        assert answer.text.strip()
        assert archive.read(path).decode() == answer.text
    assert client.get(f"{at}/artefacts.zip").content == found.content, "the same each time"
    first, second = (
        client.get(f"{at}/artefacts/train.sbatch", params={"rank": rank}).text for rank in (1, 2)
    )
    assert first != second
    beyond = client.get(f"{at}/artefacts.zip", params={"rank": 50})
    assert beyond.status_code == 422
    assert beyond.json()["errors"][0]["field"] == "rank"
    unknown = client.get(f"{at}/artefacts/run.sh")
    assert unknown.status_code == 404
    assert "train.sbatch" in unknown.json()["detail"]


def test_the_archive_of_another_trainer(client: TestClient, at: str) -> None:
    for offer in Recommendation.model_validate(client.get(f"{at}/recommendation").json()).trainers:
        answer = client.get(f"{at}/artefacts.zip", params={"trainer": offer.name})
        if offer.supported:
            names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
            assert {name.partition("/")[2] for name in names} == FILES
            assert names[0].endswith(f"-rank-1-{offer.name}/benchmark.sbatch")
        else:
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["field"]) == (422, "trainer")
            assert error["reason"] == offer.reason
    assert client.get(f"{at}/artefacts.zip", params={"trainer": "keras"}).status_code == 422


def test_a_finished_campaign_is_explained(finished: tuple[FastAPI, Campaign]) -> None:
    app, campaign = finished
    client = entitled(app)
    at = f"/api/v1/campaigns/{campaign.id}"
    found = Explanation.model_validate(client.get(f"{at}/explanation").json())
    best = client.get(f"{at}/recommendation").json()["best"]
    assert found.simulated
    assert found.strategies[0].role == "winner"
    assert as_table(found.strategies[0].strategy) == best["strategy"]
    assert found.strategies[0].iteration_time_s == best["metrics"]["iteration_time_s"]
    assert "baseline" in [each.role for each in found.strategies]
    assert 2 <= len(found.sentences) <= 3
    assert client.get("/api/v1/campaigns/99999/explanation").status_code == 404


def test_it_is_worked_out_once_until_something_happens(
    finished: tuple[FastAPI, Campaign],
) -> None:
    store: Store = finished[0].state.store
    campaign = created(store)
    campaigns = CampaignCache(store, Cache())
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


def test_many_requests_get_the_same_answer(finished: tuple[FastAPI, Campaign]) -> None:
    app, campaign = finished
    campaigns: CampaignCache = app.state.campaigns
    event = campaigns.last_event(campaign.id)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(campaigns.recommendation, [campaign.id] * 8, [event] * 8))
    first, *others = (None if each is None else each.standing for each in answers)
    assert first is not None
    assert all(other is first for other in others)
    assert "the best of its space (" in first.sentence
    assert first.neighbours


def test_a_page_is_the_same_without_what_the_runner_wrote(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    store: Store = app.state.store
    about = f"/api/v1/campaigns/{campaign.id}"

    def answers() -> list[str]:
        """Of a service that has just been started."""
        with entitled(create_app(app.state.settings, pace=QUICK)) as client:
            page = client.get(f"/campaigns/{campaign.id}")
            assert page.status_code == 200
            paths = (about, f"{about}/recommendation", f"{about}/explanation")
            return [client.get(path).text for path in paths]

    with noted_fits(store) as fits:
        written = answers()
        assert fits == []
        with store.transaction() as session:
            session.execute(delete(OutcomeRow))
        assert answers() == written
        assert fits == [0], "the page and all answers about a campaign rest on one fit"
        assert answers() == written
        assert len(fits) == 1


def test_what_trials_measured_is_given_and_the_rest_predicted(
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
    address = f"/api/v1/campaigns/{campaign.id}/figures/scaling.json"
    drawn = client.get(address).json()
    series = [ScalingSeries.model_validate(each) for each in drawn["series"]]
    assert {each.strategy for each in series} == {recommendation.best.strategy}
    assert drawn["simulated"] is True
    points = [point for each in series for point in each.points]
    measured = [point for point in points if point.measured]
    assert measured
    assert len(measured) < len(points)
    for point in measured:
        step = point.strategy
        assert point.iteration_time_s == pytest.approx(steps[step])
