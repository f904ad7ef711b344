"""Plans over REST: they rest on the trials that a campaign would start from."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.prediction.plan import plan
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import CampaignCost
from autotune.schemas.resolution import machine_of, space_of, transformer_of
from autotune.search import CampaignBelief
from autotune.words.quantities import figure
from search_spaces.fields import as_table
from server.api.planning import Plans
from server.cache import Cache
from server.campaign.start import SearchStart
from server.settings import Settings
from server.store import Store
from server.store.history import starting_observations
from server.store.trials import finish_trial
from tests.server.asking import STRATEGY, body, campaign_request, created, ended, with_trials


def planned(client: TestClient, **changes: Any) -> CampaignPlan:
    answer = client.post("/api/v1/plans", json=body(**changes))
    assert answer.status_code == 200, answer.text
    return CampaignPlan.model_validate(answer.json())


def out_of_memory(store: Store, campaign: Campaign) -> None:
    """Let one strategy of the campaign run out of memory."""
    [trial] = with_trials(store, campaign, 1)
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))


def test_a_plan_rests_on_what_the_machine_remembers(client: TestClient, store: Store) -> None:
    before = planned(client)
    assert before.started_from == []
    campaign = created(store)
    out_of_memory(store, campaign)
    after = planned(client)
    [source] = after.started_from
    assert (source.campaign_id, source.trials) == (campaign.id, 1)
    assert after.fitting < before.fitting
    assert planned(client, fresh=True).started_from == []
    assert planned(client, seed=1).started_from == []  # another simulated machine
    assert planned(client, machine="dgx-a100").started_from == []


@pytest.mark.parametrize(
    "real", [{}, {"evaluator": "slurm", "slurm": {"profile": "frontier"}}], ids=["unnamed", "slurm"]
)
def test_a_question_about_the_machine_uses_no_simulated_trial(
    client: TestClient, store: Store, real: dict[str, Any]
) -> None:
    question = {name: value for name, value in body().items() if name != "evaluator"} | real

    def answer() -> dict[str, Any]:
        document: dict[str, Any] = client.post("/api/v1/plans", json=question).json()
        return {name: value for name, value in document.items() if name != "seconds"}

    before = answer()
    out_of_memory(store, created(store))
    simulated = planned(client)
    assert simulated.simulated
    assert simulated.fitting < before["fitting"]
    assert answer() == before
    assert (before["simulated"], before["started_from"]) == (False, [])


def test_predictions_rest_on_the_earlier_trials_of_the_machine(
    client: TestClient, store: Store
) -> None:
    campaign = created(store)
    [trial] = with_trials(store, campaign, 1)
    about = {name: body()[name] for name in ("model", "machine", "evaluator")}
    strategy = as_table(trial.strategy)
    questions = {"predictions": about | {"strategy": strategy}, "plans": about | {"nodes": 4}}

    def answer(path: str, **changes: Any) -> dict[str, Any]:
        response = client.post(f"/api/v1/{path}", json=questions[path] | changes)
        assert response.status_code == 200, response.text
        document: dict[str, Any] = response.json()
        return document

    before = answer("predictions")
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))
    after = answer("predictions")
    assert after["fit_probability"] < 0.1 < before["fit_probability"]
    for path in questions:
        [source] = answer(path)["started_from"]
        assert (source["campaign_id"], source["trials"]) == (campaign.id, 1)
        assert answer(path)["simulated"] is True
        assert answer(path, machine="dgx-a100")["started_from"] == []
    assert before["started_from"] == []


def test_a_plan_is_what_a_campaign_would_begin_with(client: TestClient, store: Store) -> None:
    out_of_memory(store, created(store))
    answer = planned(client)
    later, request = created(store), campaign_request()
    machine, transformer = machine_of(request.machine), transformer_of(request.model)
    space = space_of(request.space, transformer, machine, nodes=request.nodes)
    with store.session() as session:
        earlier = starting_observations(session, later.id, space, now=later.created_at)
    start = SearchStart(alone=CampaignBelief.over(space), earlier=earlier)
    calibration = start.first_belief.prior()
    expected = plan(request, space, calibration)
    rates = [each.tokens_per_s for each in expected.best]
    assert [each.tokens_per_s for each in answer.best] == pytest.approx(rates, rel=1e-3)
    assert answer.fitting == expected.fitting


def test_a_plan_counts_the_starts_of_knobs(client: TestClient) -> None:
    small = {"model": "tiny", "machine": "local", "nodes": 1, "evaluator": "local"}
    small |= {"pool_nodes": 1, "space": {"zero_stage": [3], "tensor_parallel": [1]}}

    def cost_with(knobs: object) -> CampaignCost:
        cost = planned(client, **small, knobs=knobs).cost
        assert cost is not None
        return cost

    plain, with_one, with_all = cost_with([]), cost_with(["overlap"]), cost_with("all")
    assert 0 == plain.knob_starts < 4 < with_one.knob_starts < with_all.knob_starts < 30
    hours = [cost.node_hours for cost in (plain, with_one, with_all)]
    assert sorted(hours) == hours
    each = (with_one.node_hours - plain.node_hours) / with_one.knob_starts
    more = (with_all.node_hours - plain.node_hours) / with_all.knob_starts
    assert each == pytest.approx(more)


@pytest.mark.parametrize("change", [{"knobs": "overlp"}, {"evaluator": "simulated"}])
def test_a_plan_refuses_knobs_that_a_campaign_refuses(
    client: TestClient, change: dict[str, str]
) -> None:
    body = {"model": "tiny", "machine": "local", "evaluator": "local", "knobs": "overlap"} | change
    for path in ("plans", "campaigns"):
        answer = client.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == 422, path
        assert [each["field"] for each in answer.json()["errors"]] == ["knobs"]


def test_the_page_has_one_figure_for_one_layout(client: TestClient, store: Store) -> None:
    """Its memory calculator rests on the trials that its plan rests on."""

    def peak(**changes: Any) -> str:
        best = planned(client, **changes).best[0]
        question = body(**changes) | {"strategy": as_table(best.strategy)}
        answer = client.post("/fragments/memory", json=question)
        low, high = figure(best.memory_low_gib), figure(best.memory_high_gib)
        interval = f"80 %: {low} to {high}"
        assert interval in answer.text
        assert client.post("/fragments/scaling", json=question).status_code == 200
        return interval

    out_of_memory(store, created(store))
    assert peak() != peak(fresh=True)


def test_an_answer_is_cached_until_another_trial_has_ended(
    store: Store, sqlite_settings: Settings
) -> None:
    plans = Plans(store, sqlite_settings, Cache())
    first = plans.of(campaign_request())
    assert plans.of(campaign_request(name="another name")) is first
    assert plans.of(campaign_request(nodes=8)) is not first
    out_of_memory(store, created(store))
    assert plans.of(campaign_request()) is not first


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"model": "gpt-22x"}, "model"),
        ({"evaluator": "local"}, "evaluator"),
        ({"evaluator": "slurm"}, "slurm.profile"),
        ({"space": {"num_nodes": 99}}, "space.num_nodes"),
    ],
)
def test_an_invalid_question_is_refused_by_field(
    shared_client: TestClient, changes: dict[str, Any], field: str
) -> None:
    answer = shared_client.post("/api/v1/plans", json=body(**changes))
    assert answer.status_code == 422
    assert any(each["field"].endswith(field) for each in answer.json()["errors"])


def test_a_prediction_says_what_would_make_it_fit(shared_client: TestClient) -> None:
    strategy = as_table(STRATEGY) | {"pipeline_parallel": 1, "micro_batch_size": 16}
    question = {"model": "gpt-22b", "machine": "frontier", "strategy": strategy}
    answer = shared_client.post("/api/v1/predictions", json=question).json()
    assert not answer["fits"]
    assert answer["memory_sentence"].startswith("It needs 100 GiB of 64")
    assert answer["memory_changes"]
    for change in answer["memory_changes"]:
        again = question | {"strategy": change["strategy"]}
        fitting = shared_client.post("/api/v1/predictions", json=again).json()
        assert fitting["legal"]
        assert fitting["fits"]
        assert fitting["memory_gib"] == pytest.approx(change["memory_gib"])
        assert fitting["memory_changes"] == []
    roomy = question | {"strategy": fitting["strategy"], "min_headroom_gib": 40}
    assert not shared_client.post("/api/v1/predictions", json=roomy).json()["fits"]
