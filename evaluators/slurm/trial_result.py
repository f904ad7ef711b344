"""What is written when an attempt or a trial is over, whether its job was its own or shared."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import (
    CANCELLED,
    Attempt,
    abandoned_duration_s,
    attempts_of,
    write_abandoned,
)
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import write_result
from search_spaces.errors import InvalidInput

log = logging.getLogger(__name__)


def mark_cancelled(request: TrialRequest) -> None:
    """Whatever happens from here on, the trial is to be ended."""
    try:
        request.directory.mkdir(parents=True, exist_ok=True)
        (request.directory / CANCELLED).touch()
    except OSError:
        log.warning("a cancelled trial could not be marked as such", exc_info=True)


def abandon(attempt: Attempt, ended: AttemptEnd, *, status: str) -> None:
    """Another attempt follows this one; nobody waits for the notice of its end any more."""
    log.warning("%s: %s; it is started again", attempt.name, ended.reason)
    try:
        write_abandoned(
            attempt.folder, status=status, reason=ended.reason, duration_s=ended.duration_s
        )
        attempt.notice.unlink(missing_ok=True)
    except OSError:
        log.warning("an attempt could not be marked as over", exc_info=True)


def write_outcome(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    """The trial's outcome, in its file too; only then is the notice of its end thrown away.

    Args:
        attempt: the last one. What those before it held of nodes counts, too.
        read: what the attempt left; this may take long.
    """
    found = _or_crashed(attempt, read)
    earlier = (each for each in attempts_of(attempt.request) if each.number < attempt.number)
    held_s = sum(abandoned_duration_s(each.folder) for each in earlier)
    found = replace(found, duration_s=found.duration_s + held_s)
    try:
        attempt.request.directory.mkdir(parents=True, exist_ok=True)
        write_result(attempt.request.directory, found)
        attempt.notice.unlink(missing_ok=True)
    except OSError:
        log.warning("a trial's result could not be written", exc_info=True)
    return found


def _or_crashed(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    try:
        return read()
    except Exception as error:
        log.exception("what a trial left could not be read")
        said = f"what it left could not be read: {type(error).__name__}: {error}"
        return without_run(attempt, TrialState.CRASHED, said)


def without_run(attempt: Attempt, status: TrialState, error: str) -> TrialOutcome:
    """Of a trial whose last attempt did not run, or left nothing that can be read."""
    return TrialOutcome(
        status=status,
        started_at=datetime.now(UTC),
        duration_s=0.0,
        simulated=False,
        error=error,
        log_path=str(attempt.log) if attempt.log.exists() else None,
    )


def why_not_submitted(error: Exception | None) -> tuple[TrialState, str]:
    """Of an attempt that could not be prepared."""
    if isinstance(error, InvalidInput):
        return TrialState.REFUSED, str(error)
    if isinstance(error, OSError):
        return TrialState.CRASHED, f"no folder for it: {error.strerror or error}"
    return TrialState.REFUSED, f"no job can be written for it: {error}"
