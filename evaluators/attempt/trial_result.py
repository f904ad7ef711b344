"""What is written when an attempt or a trial has ended, whether its job was its own or shared."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from autotune.schemas import TrialState
from evaluators.attempt.abandonment import abandoned_duration_s, write_abandoned
from evaluators.attempt.attempt import CANCELLED, Attempt, attempts_of
from evaluators.program import AttemptEnd
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import write_result

log = logging.getLogger(__name__)


def mark_cancelled(request: TrialRequest) -> None:
    """Write down that the trial is to be ended, whatever happens from here on."""
    try:
        request.directory.mkdir(parents=True, exist_ok=True)
        (request.directory / CANCELLED).touch()
    except OSError:
        log.warning("a cancelled trial could not be marked as such", exc_info=True)


def abandon(attempt: Attempt, ended: AttemptEnd, *, status: str) -> None:
    """Write down that another attempt follows; nobody waits for the notice of this one's end."""
    log.warning("%s: %s; it is started again", attempt.name, ended.reason)
    try:
        write_abandoned(
            attempt.folder, status=status, reason=ended.reason, duration_s=ended.duration_s
        )
        attempt.end_notice.unlink(missing_ok=True)
    except OSError:
        log.warning("an attempt could not be marked as abandoned", exc_info=True)


def write_outcome(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    """Return the trial's outcome, and write it; only then is the notice of its end removed.

    Args:
        attempt: the last one. What those before it held of nodes counts, too.
        read: what the attempt left; this may take long.
    """
    try:
        outcome = read()
    except Exception as error:
        log.exception("what a trial left could not be read")
        reason = f"what it left could not be read: {type(error).__name__}: {error}"
        outcome = without_run(attempt, TrialState.CRASHED, reason)
    earlier_s = sum(
        abandoned_duration_s(earlier.folder)
        for earlier in attempts_of(attempt.request)
        if earlier.number < attempt.number
    )
    outcome = replace(outcome, duration_s=outcome.duration_s + earlier_s)
    try:
        attempt.request.directory.mkdir(parents=True, exist_ok=True)
        write_result(attempt.request.directory, outcome)
        attempt.end_notice.unlink(missing_ok=True)
    except OSError:
        log.warning("a trial's result could not be written", exc_info=True)
    return outcome


def without_run(attempt: Attempt, status: TrialState, error: str) -> TrialOutcome:
    """Return the outcome of a trial whose last attempt did not run, or left nothing readable."""
    return TrialOutcome(
        status=status,
        started_at=datetime.now(UTC),
        duration_s=0.0,
        simulated=False,
        error=error,
        log_path=str(attempt.log) if attempt.log.exists() else None,
    )
