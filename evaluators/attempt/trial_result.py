"""Files written at the end of an attempt or a trial, on its own job or a shared one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from autotune.files import is_file_system_failure
from autotune.schemas import TrialState
from evaluators.attempt.abandonment import abandoned_duration_s, write_abandoned
from evaluators.attempt.attempt import CANCELLED, LOG, Attempt, attempts_of
from evaluators.program import AttemptEnd
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import log_tail, write_result

PATIENCE_S = 120.0
PAUSE_S = 1.0
log = logging.getLogger(__name__)


def mark_cancelled(request: TrialRequest) -> None:
    """Record that the trial must end, whatever happens next."""
    try:
        request.directory.mkdir(parents=True, exist_ok=True)
        (request.directory / CANCELLED).touch()
    except OSError:
        log.warning("a cancelled trial could not be marked as such", exc_info=True)


def abandon(attempt: Attempt, ended: AttemptEnd, *, status: str) -> None:
    """Record that another attempt follows, and remove the notice of this one's end."""
    log.warning("%s: %s; it is started again", attempt.name, ended.reason)
    try:
        write_abandoned(
            attempt.folder, status=status, reason=ended.reason, duration_s=ended.duration_s
        )
        attempt.end_notice.unlink(missing_ok=True)
    except OSError:
        log.warning("an attempt could not be marked as abandoned", exc_info=True)


def write_outcome(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    """Return the trial's outcome and write it, then remove the notice of its end.

    Args:
        attempt: the last one. Node time of earlier ones counts, too.
        read: reads the attempt's files, which may take long.
    """
    outcome = _read_patiently(attempt, read)
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


def _read_patiently(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    """Read an attempt's files; while its file system fails, retry for up to PATIENCE_S."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return read()
        except Exception as error:
            failing = is_file_system_failure(error)
            if failing and time.monotonic() < until:
                time.sleep(PAUSE_S)
                continue
            log.exception("what a trial left could not be read")
            reason = f"what it left could not be read: {type(error).__name__}: {error}"
            status = TrialState.LOST if failing else TrialState.CRASHED
            return without_run(attempt.folder, status, reason)


def without_run(folder: Path, status: TrialState, error: str, *, host: str = "") -> TrialOutcome:
    """Return the outcome of a trial that did not run, or left nothing readable in this folder."""
    log = folder / LOG
    return TrialOutcome(
        status=status,
        started_at=datetime.now(UTC),
        duration_s=0.0,
        simulated=False,
        error=error,
        log_tail=log_tail(folder),
        log_path=str(log) if log.exists() else None,
        host=host,
    )
