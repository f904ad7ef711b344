from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from autotune.measurement import AccumulationMeasurement
from autotune.resolution import strategy_of
from autotune.schemas import TrialState
from evaluators.trial import TrialOutcome, TrialProgress
from search_spaces.catalog import load_machine, load_model
from server.runner.outcomes import (
    Subject,
    differs,
    final_values,
    standing_values,
    storable,
)
from server.store import Store
from tests.server.asking import STRATEGY, created, with_trials

SUBJECT = Subject(
    transformer=load_model("gpt-22b"), machine=load_machine("frontier"), objective="tokens_per_s"
)
NOW = datetime(2030, 1, 1, tzinfo=UTC)
MEASURED = tuple(
    AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=(seconds,) * 3)
    for gas, seconds in ((8, 4.0), (16, 7.0))
)


def outcome(**changes: object) -> TrialOutcome:
    plain: dict[str, object] = {
        "status": TrialState.OK,
        "started_at": NOW - timedelta(seconds=100),
        "duration_s": 90.0,
        "simulated": True,
        "measurements": MEASURED,
        "peak_memory_gib": (10.0, 12.0),
    }
    return TrialOutcome(**plain | changes)  # type: ignore[arg-type]


def test_the_figures_of_a_trial_that_went_well() -> None:
    values = final_values(SUBJECT, strategy_of(STRATEGY), outcome(), now=NOW)
    assert values["state"] is TrialState.OK
    assert values["metrics"]["iteration_time_s"] == 4.0
    assert values["metrics"]["peak_memory_gib"] == 12.0
    batch = 1 * 8 * 2  # MBS x GAS x DP
    assert values["objective"] == pytest.approx(batch * 2048 / 4.0)
    assert values["node_hours"] == pytest.approx(2 * 90.0 / 3600)
    assert values["finished_at"] == NOW - timedelta(seconds=10)
    assert [one["gradient_accumulation_steps"] for one in values["measurements"]] == [8, 16]


def test_a_simulated_trial_does_not_end_in_the_future() -> None:
    values = final_values(SUBJECT, strategy_of(STRATEGY), outcome(duration_s=500.0), now=NOW)
    assert values["finished_at"] == NOW
    assert values["duration_s"] == 500.0


def test_a_failed_trial_has_no_figures_but_costs_its_time() -> None:
    failed = outcome(status=TrialState.OOM, error="no memory")
    values = final_values(SUBJECT, strategy_of(STRATEGY), failed, now=NOW)
    assert values["metrics"] is None
    assert values["objective"] is None
    assert values["measurements"] == []
    assert values["error"] == "no memory"
    assert values["node_hours"] > 0


@pytest.mark.parametrize(
    "measurements",
    [
        (),
        (AccumulationMeasurement(gradient_accumulation_steps=16, iteration_times_s=(7.0,)),),
        (AccumulationMeasurement(gradient_accumulation_steps=8, iteration_times_s=(0.0,)),),
        (AccumulationMeasurement(gradient_accumulation_steps=8, iteration_times_s=(math.nan,)),),
    ],
)
def test_a_trial_that_measured_too_little_has_crashed(
    measurements: tuple[AccumulationMeasurement, ...],
) -> None:
    found = outcome(measurements=measurements)
    values = final_values(SUBJECT, strategy_of(STRATEGY), found, now=NOW)
    assert values["state"] is TrialState.CRASHED
    assert values["objective"] is None
    assert "no iteration time" in values["error"]


def test_a_loss_that_is_no_number_is_not_stored() -> None:
    values = final_values(SUBJECT, strategy_of(STRATEGY), outcome(loss=math.nan), now=NOW)
    assert values["metrics"]["loss"] is None


def test_a_text_is_made_storable() -> None:
    assert storable("a\0b\ud800c") == "ab?c"


def test_what_a_scheduler_and_the_gpus_told_is_kept() -> None:
    told = outcome(job_id="4711", joules_per_token=0.25, energy_note="nvidia-smi on 2 nodes")
    values = final_values(SUBJECT, strategy_of(STRATEGY), told, now=NOW)
    assert (values["job_id"], values["joules_per_token"]) == ("4711", 0.25)
    assert values["energy_note"] == "nvidia-smi on 2 nodes"
    assert values["phase"] is None
    assert values["phase_reason"] == ""
    for none in (math.nan, 0.0, None):
        told = outcome(joules_per_token=none)
        values = final_values(SUBJECT, strategy_of(STRATEGY), told, now=NOW)
        assert values["joules_per_token"] is None


def test_a_standing_is_written_only_where_it_is_new(store: Store) -> None:
    (trial,) = with_trials(store, created(store), 1)
    assert not differs(trial, standing_values(None))
    waiting = TrialProgress(phase="waiting", reason="Prio\0rity", job_id="7", host="n" * 300)
    values = standing_values(waiting)
    assert differs(trial, values)
    noted = trial.model_copy(update=values)
    assert not differs(noted, standing_values(waiting))
    assert differs(noted, standing_values(TrialProgress(phase="running")))
    assert differs(noted, standing_values(None))
