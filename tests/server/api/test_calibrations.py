from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.measurement import AccumulationMeasurement
from autotune.measurement import metrics as metrics_of
from autotune.resolution import machine_shape, strategy_of
from autotune.schemas.calibrations import CalibrationDetail, CalibrationDocument, CalibrationSummary
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.predictions import Prediction, Sweep
from autotune.schemas.trials import Accumulation, TrialMetrics
from search_spaces.catalog import load_machine, load_model
from server.store import Store
from server.store.trials import finish_trial
from tests.server.asking import STRATEGY, created, ended, with_trials
from tests.server.calibrations import document
from tests.server.entitled import entitled

URL = "/api/v1/calibrations"
PREDICTIONS, SWEEPS = "/api/v1/predictions", "/api/v1/sweeps"
QUESTION = {"model": "gpt-22b", "machine": "frontier"}
VERSIONS = {"deepspeed": "0.19.8", "torch": "2.13.0"}


def measured(
    store: Store,
    *,
    seconds: float = 9.0,
    versions: Any = None,
    metrics: TrialMetrics | None = None,
    **changes: Any,
) -> int:
    """The id of a campaign with one trial that ended well and one out of memory."""
    campaign = created(store, **changes)
    well, badly = with_trials(store, campaign, 2)
    point = Accumulation(
        gradient_accumulation_steps=8,
        global_batch_size=16,
        iteration_time_s=seconds,
        tokens_per_s=16 * 2048 / seconds,
        measured=True,
        iteration_times_s=[seconds],
    )
    timed = ended(
        TrialState.OK,
        accumulations=[point],
        metrics=metrics,
        peak_memory_gib_by_rank=[40.0, 41.0],
        versions=VERSIONS if versions is None else versions,
    )
    with store.transaction() as session:
        assert finish_trial(session, well, timed)
        assert finish_trial(session, badly, ended(TrialState.OOM, error="out of memory"))
    return campaign.id


def posted(client: TestClient, name: str, *campaigns: int, **more: Any) -> Any:
    body = {"name": name, "campaigns": campaigns} | more
    return client.post(URL, json=body)


def imported(
    client: TestClient, name: str, content: CalibrationDocument | Mapping[str, Any]
) -> Any:
    body = content if isinstance(content, Mapping) else content.model_dump(mode="json")
    return client.put(f"{URL}/{name}", json=body)


def refused(answer: Any) -> dict[str, str]:
    """Field -> reason."""
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["reason"] for error in answer.json()["errors"]}


def listed(client: TestClient) -> list[str]:
    return [CalibrationSummary.model_validate(each).name for each in client.get(URL).json()]


def test_a_simulated_campaign_is_fitted_and_says_that_it_was_simulated(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    client = entitled(app)
    answer = posted(client, "from-trials", campaign.id)
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"{URL}/from-trials"
    detail = CalibrationDetail.model_validate(answer.json())
    assert detail.simulated
    assert detail.machine == "frontier"
    assert detail.software.startswith("autotune ")
    assert detail.models == ["gpt-22b"]
    assert detail.observations == campaign.trials + campaign.confirmations
    assert any(each.spread < 0.9 * each.prior_spread for each in detail.constants)
    assert CalibrationDetail.model_validate(client.get(f"{URL}/from-trials").json()) == detail


def test_a_trial_whose_trainer_counts_another_model_is_left_out(
    client: TestClient, store: Store
) -> None:
    timed = AccumulationMeasurement(gradient_accumulation_steps=8, iteration_times_s=(9.0,))
    metrics = metrics_of(
        load_model("gpt-22b"),
        load_machine("frontier"),
        strategy_of(STRATEGY),
        [timed],
        trainer_parameters=1e9,
    )
    campaign = measured(store, evaluator="local", metrics=metrics)
    detail = CalibrationDetail.model_validate(posted(client, "other", campaign).json())
    assert (detail.observations, detail.timed, detail.out_of_memory) == (1, 0, 1)


def test_trials_of_several_campaigns_are_put_together(client: TestClient, store: Store) -> None:
    first = measured(store, evaluator="local")
    second = measured(store, evaluator="local", model="gpt-1.4b", seconds=1.5)
    answer = posted(client, "both", first, second, first)
    detail = CalibrationDetail.model_validate(answer.json())
    assert (detail.observations, detail.timed, detail.out_of_memory) == (4, 2, 2)
    assert detail.models == ["gpt-22b", "gpt-1.4b"]
    assert not detail.simulated
    assert detail.software == "deepspeed 0.19.8, torch 2.13.0"
    exported = CalibrationDocument.model_validate(client.get(f"{URL}/both/document").json())
    assert [each.iteration_time_s for each in exported.observations] == [9.0, None, 1.5, None]
    assert exported.observations[0].peak_memory_gib == 41.0
    assert exported.observations[0].strategy == STRATEGY


def test_campaigns_that_cannot_be_put_together_are_all_named(
    client: TestClient, store: Store
) -> None:
    first = measured(store, evaluator="local")
    elsewhere = measured(store, evaluator="local", machine="perlmutter")
    more = machine_shape(load_machine("frontier")).model_copy(update={"memory_gib": 96.0})
    larger = measured(store, evaluator="local", machine=more.model_dump(mode="json"))
    simulated = measured(store)
    idle = created(store).id
    answer = posted(client, "mixed", first, elsewhere, larger, simulated, idle, 99, 10**30)
    problems = refused(answer)
    assert set(problems) == {f"campaigns.{place}" for place in range(1, 7)}
    assert problems["campaigns.1"] == f"it ran on perlmutter, and campaign {first} on frontier"
    assert "frontier with memory_gib 96.0" in problems["campaigns.2"]
    assert problems["campaigns.3"] == f"it was simulated, and campaign {first} measured"
    assert "no trial" in problems["campaigns.4"]
    assert problems["campaigns.5"] == "there is no campaign 99"
    assert listed(client) == []


def test_two_stacks_are_not_one_unless_the_user_says_so(client: TestClient, store: Store) -> None:
    old = measured(store, versions=VERSIONS | {"torch": "2.12.0"})
    new, unknown = measured(store), measured(store, versions={})
    answer = posted(client, "two", old, new)
    assert "torch 2.12.0; deepspeed 0.19.8, torch 2.13.0" in refused(answer)["software"]
    assert listed(client) == []
    for campaigns, said, software in (
        ([old, new], {"software": "both of them"}, "both of them"),
        ([unknown, new], {}, "deepspeed 0.19.8, torch 2.13.0"),
        ([unknown], {}, ""),
    ):
        answer = posted(client, f"of-{len(listed(client))}", *campaigns, **said)
        assert answer.json()["software"] == software


def test_what_is_exported_is_imported_once_under_a_name_until_it_is_deleted(
    client: TestClient, store: Store
) -> None:
    assert imported(client, "one", document()).status_code == 201
    exported = client.get(f"{URL}/one/document").json()
    answer = imported(client, "two", exported)
    assert answer.status_code == 201
    assert answer.headers["location"] == f"{URL}/two"
    one, two = (client.get(f"{URL}/{name}").json() for name in ("one", "two"))
    assert one["constants"] == two["constants"]
    assert listed(client) == ["two", "one"]
    campaign = measured(store)
    for answer in (
        imported(client, "one", document(slower=3.0)),
        posted(client, "one", campaign),
    ):
        assert answer.status_code == 409
        [error] = answer.json()["errors"]
        assert (error["field"], error["value"]) == ("name", "one")
        assert error["valid"]
    assert client.get(f"{URL}/one/document").json() == exported
    assert client.delete(f"{URL}/one").status_code == 204
    for method, path in (("GET", ""), ("GET", "/document"), ("DELETE", "")):
        answer = client.request(method, f"{URL}/one{path}")
        assert answer.status_code == 404
        assert answer.json()["detail"] == "there is no calibration one"


def test_a_name_of_no_use(client: TestClient, store: Store) -> None:
    campaign = measured(store)
    for name in ("none", "two words", "-begins", "a" * 101):
        assert "name" in refused(posted(client, name, campaign))
        assert "name" in refused(imported(client, name, document()))
    assert listed(client) == []


def test_a_faulty_document_is_refused_whole(client: TestClient) -> None:
    content = document().model_dump(mode="json")
    content["observations"][1]["strategy"]["num_nodes"] = 10**6
    content["observations"][2]["fitted"] = None
    assert "format" in refused(imported(client, "mine", content | {"format": "another"}))
    content["software"] = "with a \0"
    assert set(refused(imported(client, "mine", content))) == {"software"}
    content["software"] = ""
    problems = refused(imported(client, "mine", content))
    assert set(problems) == {"observations.1.strategy", "observations.2.fitted"}
    content["observations"][0]["strategy"]["zero_stage"] = 7
    assert set(refused(imported(client, "mine", content))) == {"observations.0.strategy.zero_stage"}
    assert listed(client) == []


def predicted(client: TestClient, **changes: Any) -> Prediction:
    strategy = STRATEGY.model_dump()
    answer = client.post(PREDICTIONS, json=QUESTION | {"strategy": strategy} | changes)
    assert answer.status_code == 200, answer.text
    return Prediction.model_validate(answer.json())


def test_a_prediction_rests_on_what_is_asked_for(client: TestClient) -> None:
    general = predicted(client)
    assert general.calibration is None
    imported(client, "new", document(slower=1.5, simulated=True))
    assert predicted(client) == general
    imported(client, "old", document(slower=3.0))
    imported(client, "newest", document(slower=1.5))
    imported(client, "elsewhere", document("perlmutter"))
    assert predicted(client, calibration="none") == general
    simulated = predicted(client, evaluator="simulated").calibration
    assert simulated is not None
    assert (simulated.name, simulated.simulated) == ("new", True)
    newest = predicted(client)
    assert newest.calibration is not None
    assert (newest.calibration.name, newest.calibration.simulated) == ("newest", False)
    by_name = predicted(client, calibration="new")
    assert by_name.calibration is not None
    assert by_name.calibration.simulated
    old = predicted(client, calibration="old")
    times = [each.iteration_time_s for each in (general, newest, old)]
    assert times == sorted(times, key=lambda each: each or 0.0)
    assert old.iteration_time_s != newest.iteration_time_s


def test_an_unknown_calibration_is_refused_with_the_nearest(client: TestClient) -> None:
    imported(client, "frontier-2030", document())
    for path, body in ((PREDICTIONS, {"strategy": STRATEGY.model_dump()}), (SWEEPS, {"nodes": 2})):
        asked = QUESTION | body | {"calibration": "frontier-2031"}
        answer = client.post(path, json=asked)
        assert "there is no calibration frontier-2031" in refused(answer)["calibration"]
        assert answer.json()["errors"][0]["valid"] == "frontier-2030 or none"


def test_faults_of_the_question_come_before_any_calibration(client: TestClient) -> None:
    imported(client, "mine", document())
    body = {"model": "gpt-22c", "machine": "fronteer", "strategy": STRATEGY.model_dump()}
    assert set(refused(client.post(PREDICTIONS, json=body))) == {"model", "machine"}


def test_a_space_is_swept(client: TestClient) -> None:
    imported(client, "mine", document(slower=3.0))
    body = QUESTION | {"nodes": 2, "most": 5}
    with_trials_, without = (
        Sweep.model_validate(client.post(SWEEPS, json=body | more).json())
        for more in ({}, {"calibration": "none"})
    )
    assert with_trials_.calibration is not None
    assert with_trials_.calibration.name == "mine"
    assert without.calibration is None
    assert len(without.rows) == len(with_trials_.rows) == 5
    assert without.legal == with_trials_.legal > without.fitting > 5
    assert without.rows[0].tokens_per_s > with_trials_.rows[0].tokens_per_s
