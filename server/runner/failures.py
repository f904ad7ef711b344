"""Failures that are all alike, at which a campaign pauses rather than spend its budget. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime
from itertools import takewhile

from autotune.schemas import Trial, TrialState

MEANINGS = {
    TrialState.CRASHED: "crashed",
    TrialState.TIMEOUT: "ran out of time",
    TrialState.REFUSED: "were refused",
    TrialState.NODE_FAIL: "lost their nodes",
    TrialState.PREEMPTED: "were preempted",
    TrialState.LOST: "were lost",
    TrialState.CANCELLED: "were cancelled from outside",
}
OWN_FAULTS = frozenset({TrialState.CRASHED, TrialState.TIMEOUT})
"""What a strategy may have brought about: alike by chance, once others have gone otherwise."""
NEVER = datetime.min.replace(tzinfo=UTC)


def same_failure(
    trials: Sequence[Trial], *, fresh: Collection[int], times: int, withdrawn: Collection[str] = ()
) -> str | None:
    """Why to pause: the last trials, `times` or more, failed in one way; None if it is not so.

    Crashes and time limits count while no trial has ended otherwise, the other failures always.
    It is said once for each `times` trials, so that a campaign that was resumed is not paused at
    its very next one.

    Args:
        fresh: numbers of the trials that have ended since it was last asked.
        withdrawn: tokens of the trials that were cancelled for this campaign's own sake.
    """
    ended = _last_first(t for t in trials if t.token not in withdrawn)
    if not ended or (state := ended[0].state) not in MEANINGS:
        return None
    if state is not TrialState.CANCELLED:
        ended = [trial for trial in ended if trial.state is not TrialState.CANCELLED]
    alike = list(takewhile(lambda t: (t.state, t.error) == (state, ended[0].error), ended))
    count, before = len(alike), sum(trial.number not in fresh for trial in alike)
    if count // times == before // times or (state in OWN_FAULTS and count < len(ended)):
        return None
    which = f"all {count} trials so far" if count == len(ended) else f"the last {count} trials"
    return f"{which} {MEANINGS[state]} in the same way: {ended[0].error}"


def _last_first(trials: Iterable[Trial]) -> list[Trial]:
    ended = (trial for trial in trials if trial.state is not TrialState.PENDING)
    return sorted(ended, key=lambda t: (t.finished_at or NEVER, t.number), reverse=True)
