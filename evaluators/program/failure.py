"""Why an attempt failed: what Slurm decided, what the log says, and which of them counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.program.program import AttemptEnd
from evaluators.training_log import Cause, CauseKind
from evaluators.trial_files import log_tail

# What a job of ours says of itself, as where a module of the profile does not load.
OWN_WORDS = "autotune: "

# Where ranks were ended from outside, Slurm's word for it may have come to nothing but the log.
_STATUS: Mapping[CauseKind, TrialState] = {
    CauseKind.OUT_OF_MEMORY: TrialState.OOM,
    CauseKind.TIME_LIMIT: TrialState.TIMEOUT,
    CauseKind.NODE_FAILURE: TrialState.NODE_FAIL,
    CauseKind.PREEMPTED: TrialState.PREEMPTED,
    CauseKind.CANCELLED: TrialState.CANCELLED,
}
# A rank that ran out of memory may leave the others waiting until something ends them.
_MAY_HIDE_MEMORY = (None, TrialState.TIMEOUT, TrialState.OOM)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """`error` is one line, the same for the same cause."""

    status: TrialState
    error: str


def failure_of(ended: AttemptEnd, cause: Cause | None, folder: Path) -> Failure | None:
    """Why the attempt in `folder` failed; None where neither its end nor Slurm says that it did.

    Args:
        cause: of the failure in its log, if there is one.
    """
    failed = ended.status is not None or ended.exit_code != 0
    if failed and cause and cause.out_of_memory and ended.status in _MAY_HIDE_MEMORY:
        return Failure(status=TrialState.OOM, error=cause.error)
    if ended.status is not None:
        return Failure(status=ended.status, error=ended.reason)
    return _by_itself(ended, cause, folder) if failed else None


def _by_itself(ended: AttemptEnd, cause: Cause | None, folder: Path) -> Failure:
    if words := _own_words(folder):
        return Failure(status=TrialState.CRASHED, error=words)
    if cause:
        status = _STATUS.get(cause.kind, TrialState.CRASHED)
        return Failure(status=status, error=cause.error)
    if ended.exit_code is None:
        error = "it ended with no exit code, and its log does not say why"
    else:
        error = f"it ended with exit code {ended.exit_code}, and its log does not say why"
    return Failure(status=TrialState.CRASHED, error=error)


def _own_words(folder: Path) -> str | None:
    lines = reversed(log_tail(folder).splitlines())
    said = (line.removeprefix(OWN_WORDS) for line in lines if line.startswith(OWN_WORDS))
    return next(said, None)
