"""Decisions about an attempt in pilot mode, which is a step of an allocation, not a job. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles
from evaluators.slurm.job_decision import (
    AbandonAttempt,
    Decision,
    EndAttempt,
    Ended,
    JobStatus,
    blame_slurm,
    decide,
)


@dataclass(frozen=True, kw_only=True)
class NodeLoss:
    """What became of nodes while a trial ran on them; `status` is None if nothing did."""

    status: TrialState | None = None
    reason: str = ""
    failed_nodes: frozenset[str] = frozenset()


NO_LOSS = NodeLoss()


def decide_step(
    files: AttemptFiles,
    *,
    job_id: str,
    nodes: Sequence[str],
    loss: NodeLoss,
    log_end: str,
    time_limit_s: float,
    ended_at: float,
    cancelled: bool,
) -> Ended:
    """Return the decision about an attempt in pilot mode whose processes and steps are gone.

    Args:
        loss: of the attempt's nodes.
        log_end: the last lines of the attempt's log, with srun's messages.
        ended_at: when its processes were found gone (epoch).
    """
    gone = JobStatus(
        now=ended_at, asked_at=float("inf"), absent_since=ended_at, accounted=True, settle_s=0.0
    )
    decision = decide(files, gone, time_limit_s=time_limit_s, cancelled=cancelled)
    if isinstance(decision, EndAttempt):
        end = undecided = _on(decision.end, nodes, job_id)
    else:
        end = _on(_without_an_end(decision, ended_at), nodes, job_id)
        undecided = replace(end, status=None)
    blamed = blame_slurm(EndAttempt(end=undecided), log_end, cancelled=cancelled)
    if isinstance(blamed, EndAttempt) and (blamed.end.status or blamed.end.exit_code == 0):
        return blamed
    if loss.status is not None:
        return AbandonAttempt(end=replace(end, status=loss.status, reason=loss.reason))
    if isinstance(blamed, EndAttempt) and not isinstance(decision, EndAttempt):
        return AbandonAttempt(end=end)
    return blamed


def _without_an_end(decision: Decision, ended_at: float) -> AttemptEnd:
    """Return the end of a script whose processes are gone and which did not record its end."""
    if isinstance(decision, AbandonAttempt):
        reason = "its processes on the service's host were killed"
        return replace(decision.end, reason=reason)
    return AttemptEnd(
        status=TrialState.LOST,
        reason="it was started and never began",
        exit_code=None,
        started_at=datetime.fromtimestamp(ended_at, UTC),
        duration_s=0.0,
    )


def _on(end: AttemptEnd, nodes: Sequence[str], job_id: str) -> AttemptEnd:
    return replace(end, host=",".join(nodes), job_id=job_id)
