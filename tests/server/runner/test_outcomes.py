from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from autotune.measurement import AccumulationMeasurement
from autotune.resolution import strategy_of
from autotune.schemas import Trial, TrialState
from evaluators.trial import TrialOutcome, TrialStatus
from search_spaces.catalog import load_machine, load_model
from server.runner.outcomes import Subject, final_values, same_crash, storable
from tests.server.asking import STRATEGY

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
        "status": TrialStatus.OK,
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
    failed = outcome(status=TrialStatus.OOM, error="no memory")
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


def trial(number: int, state: TrialState, error: str | None = None) -> Trial:
    return Trial(
        id=number,
        campaign_id=1,
        number=number,
        purpose="search",
        strategy=STRATEGY,
        token=f"t{number}",
        state=state,
        simulated=False,
        created_at=NOW,
        started_at=None,
        finished_at=None,
        duration_s=None,
        node_hours=None,
        predicted_iteration_time_s=None,
        predicted_memory_gib=None,
        metrics=None,
        accumulations=[],
        peak_memory_gib_by_rank=[],
        error=error,
        log_path=None,
        host=None,
        versions={},
    )


def test_crashes_that_are_all_alike_are_told_from_others() -> None:
    alike = [trial(n, TrialState.CRASHED, "ImportError") for n in range(1, 6)]
    assert "all 5 trials" in (same_crash(alike, times=5) or "")
    assert same_crash(alike[:4], times=5) is None
    assert same_crash([*alike[:4], trial(5, TrialState.CRASHED, "other")], times=5) is None
    assert same_crash([*alike[:4], trial(5, TrialState.OOM, "ImportError")], times=5) is None
    running = [*alike, trial(6, TrialState.PENDING), trial(7, TrialState.CANCELLED)]
    assert same_crash(running, times=5) is not None
    assert same_crash([*alike, trial(6, TrialState.CRASHED, "ImportError")], times=5) is None
    assert same_crash([], times=5) is None
