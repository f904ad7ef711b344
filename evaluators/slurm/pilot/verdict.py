"""What became of an attempt whose processes are gone. Pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.evidence import Evidence
from evaluators.slurm.judgement import SETTLE_S, Retry, Sight, judge
from evaluators.slurm.pilot.allocation import Fate
from evaluators.slurm.pilot.steps import Place
from evaluators.slurm.step_errors import NoStep, judge_step


def verdict(
    evidence: Evidence,
    place: Place,
    *,
    fate: Fate,
    log_end: str,
    time_limit_s: float,
    ended_at: float,
    cancelled: bool,
) -> AttemptEnd | Retry | NoStep:
    """Final, or another attempt is to follow.

    Args:
        fate: of the attempt's nodes.
        log_end: the last lines of the attempt's log, where srun speaks of itself, too.
        ended_at: when its processes were found gone (epoch).
    """
    # Nothing is to be waited for: the processes are gone, and so are its steps.
    sight = Sight(
        now=ended_at + SETTLE_S,
        asked_at=float("inf"),
        quiet_since=ended_at,
        accounted=True,
    )
    said = judge(evidence, sight, time_limit_s=time_limit_s, cancelled=cancelled)
    ended = _placed(said if isinstance(said, AttemptEnd) else _never_said(said, ended_at), place)
    undecided = ended if isinstance(said, AttemptEnd) else replace(ended, status=None)
    found = judge_step(undecided, log_end, cancelled=cancelled)
    if isinstance(found, AttemptEnd) and (found.status is not None or found.exit_code == 0):
        return found
    if fate.status is not None:
        return Retry(ended=replace(ended, status=fate.status, reason=fate.reason))
    if isinstance(found, AttemptEnd) and not isinstance(said, AttemptEnd):
        return Retry(ended=ended)
    return found


def _never_said(found: object, ended_at: float) -> AttemptEnd:
    """Its processes are gone, and it did not say how it ended."""
    if isinstance(found, Retry):
        return replace(found.ended, reason="its processes on the service's host were killed")
    return AttemptEnd(
        status=TrialState.LOST,
        reason="it was started and never began",
        exit_code=None,
        started_at=datetime.fromtimestamp(ended_at, UTC),
        duration_s=0.0,
    )


def _placed(ended: AttemptEnd, place: Place) -> AttemptEnd:
    return replace(ended, host=",".join(place.nodes), job_id=place.job_id)
