"""What became of an attempt whose processes are gone. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from evaluators.program import Ended
from evaluators.slurm.evidence import Evidence
from evaluators.slurm.judgement import SETTLE_S, Retry, Sight, judge
from evaluators.slurm.pilot.allocation import Fate
from evaluators.slurm.pilot.steps import Place
from evaluators.slurm.step_errors import StepError
from evaluators.trial import TrialStatus


@dataclass(frozen=True, kw_only=True)
class NoStep:
    """Slurm made no step, for a reason that passes: the same is tried again soon."""

    ended: Ended


def verdict(
    evidence: Evidence,
    place: Place,
    *,
    fate: Fate,
    error: StepError | None,
    time_limit_s: float,
    ended_at: float,
    cancelled: bool,
) -> Ended | Retry | NoStep:
    """Final, or another attempt is to follow.

    Args:
        fate: of the attempt's nodes.
        error: what srun said of itself, in the attempt's log.
        ended_at: when its processes were found gone (epoch).
    """
    # Nothing is to be waited for: the processes are gone, and so are its steps.
    sight = Sight(
        now=ended_at + SETTLE_S,
        asked_at=float("inf"),
        quiet_since=ended_at,
        accounted=True,
    )
    found = judge(evidence, sight, time_limit_s=time_limit_s, cancelled=cancelled)
    if isinstance(found, Ended) and (found.status is not None or found.exit_code == 0):
        return _placed(found, place)
    ended = found if isinstance(found, Ended) else _never_said(found, ended_at)
    ended = _placed(ended, place)
    if fate.status is not None:
        return Retry(ended=replace(ended, status=fate.status, reason=fate.reason))
    if error and error.failed_nodes:
        reason = "a node failed under it"
        return Retry(ended=replace(ended, status=TrialStatus.NODE_FAIL, reason=reason))
    if error:
        reason = f"Slurm did not start its step: {error.not_created}"
        return NoStep(ended=replace(ended, status=TrialStatus.CRASHED, reason=reason))
    return ended if isinstance(found, Ended) else Retry(ended=ended)


def _never_said(found: object, ended_at: float) -> Ended:
    """Its processes are gone, and it did not say how it ended."""
    if isinstance(found, Retry):
        return replace(found.ended, reason="its processes on the service's host were killed")
    return Ended(
        status=TrialStatus.LOST,
        reason="it was started and never began",
        exit_code=None,
        started_at=datetime.fromtimestamp(ended_at, UTC),
        duration_s=0.0,
    )


def _placed(ended: Ended, place: Place) -> Ended:
    return replace(ended, host=",".join(place.nodes), job_id=place.job_id)
