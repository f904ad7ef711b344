from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from autotune.schemas import Trial, TrialState
from server.runner.failures import same_failure
from tests.server.asking import STRATEGY

NOW = datetime(2030, 1, 1, tzinfo=UTC)
CRASHED, REFUSED, OK = TrialState.CRASHED, TrialState.REFUSED, TrialState.OK
CANCELLED = TrialState.CANCELLED


def trial(number: int, state: TrialState, error: str | None = None) -> Trial:
    ended = state is not TrialState.PENDING
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
        finished_at=NOW + timedelta(seconds=number) if ended else None,
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


def trials(state: TrialState, count: int, *, after: int = 0, error: str = "same") -> list[Trial]:
    return [trial(number, state, error) for number in range(after + 1, after + count + 1)]


def asked(found: list[Trial], *, fresh: int = 1) -> str | None:
    """With the last `fresh` of them new."""
    return same_failure(found, fresh={t.number for t in found[-fresh:]}, times=5)


@pytest.mark.parametrize("state", [CRASHED, TrialState.TIMEOUT, REFUSED, TrialState.LOST])
def test_the_first_trials_all_failed_alike(state: TrialState) -> None:
    assert asked(trials(state, 4)) is None
    assert (asked(trials(state, 5)) or "").startswith("all 5 trials so far")
    assert (asked(trials(state, 5)) or "").endswith("in the same way: same")
    assert asked(trials(state, 6)) is None
    assert asked(trials(state, 10)) is not None


def test_several_that_end_at_once_do_not_jump_over_the_count() -> None:
    assert "all 8 trials" in (asked(trials(CRASHED, 8), fresh=4) or "")
    assert asked(trials(CRASHED, 8), fresh=3) is None


@pytest.mark.parametrize("state", [OK, CANCELLED, TrialState.OOM])
def test_what_is_no_fault_pauses_nothing(state: TrialState) -> None:
    found = same_failure(
        trials(state, 5), fresh={5}, times=5, withdrawn={f"t{n}" for n in range(1, 6)}
    )
    assert found is None
    assert same_failure([], fresh=set(), times=5) is None


def test_another_error_or_another_end_breaks_the_row() -> None:
    assert asked([*trials(REFUSED, 4), trial(5, REFUSED, "other")]) is None
    assert asked([*trials(REFUSED, 4), trial(5, CRASHED, "same")]) is None
    assert asked([*trials(REFUSED, 4), trial(5, OK)]) is None


def test_running_and_cancelled_ones_do_not() -> None:
    found = [*trials(CRASHED, 4), trial(5, CANCELLED, "by the user"), trial(6, TrialState.PENDING)]
    assert asked([*found, trial(7, CRASHED, "same")]) is not None


def test_after_others_went_well_only_what_is_no_strategys_fault_counts() -> None:
    assert asked([trial(1, OK), *trials(CRASHED, 5, after=1)]) is None
    said = asked([trial(1, OK), *trials(REFUSED, 5, after=1, error="Invalid account")])
    assert said == "the last 5 trials were refused in the same way: Invalid account"


def test_jobs_that_somebody_else_cancels_are_told() -> None:
    said = asked([trial(1, OK), *trials(CANCELLED, 5, after=1, error="by uid 0")])
    assert said == "the last 5 trials were cancelled from outside in the same way: by uid 0"
