"""One attempt at a trial, its folder, and the records of its end.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it must end
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

Each kind of backend documents its files in an attempt's folder; all have:

    trial.log                       the output
    abandoned.json                  abandoned, and why (`abandonment`)
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from autotune.files import is_file_system_failure, write_whole
from autotune.schemas.choices import TrialState
from evaluators.attempt.attempt_state import AttemptState
from evaluators.program import AttemptEnd
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import log_tail, write_result
from search_spaces.errors import InvalidInput

LOG = "trial.log"
ENDED = "ended"
CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt at a trial. `number` counts from 1."""

    request: TrialRequest
    number: int

    @cached_property
    def name(self) -> str:
        """Return the unique name of its job or step, by which it is found again.

        A search for the same model may use the same token in another folder.
        """
        place = sha256(os.fsencode(self.request.directory.absolute())).hexdigest()
        return f"{self.request.token}.{self.number}-{place[:6]}"

    @property
    def folder(self) -> Path:
        return self.request.directory / f"attempt-{self.number}"

    @property
    def ended_folder(self) -> Path:
        """Return the folder in which each ended attempt of these trials leaves an empty file of its
        name."""
        return self.request.directory.parent / ENDED

    @property
    def end_notice(self) -> Path:
        """Return the empty file that marks this attempt as ended."""
        return self.ended_folder / self.name

    @property
    def log(self) -> Path:
        return self.folder / LOG


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Return the attempts that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]


ABANDONED = "abandoned.json"


def write_abandoned(folder: Path, *, status: str, reason: str, duration_s: float) -> None:
    """Record that the attempt is abandoned, and why. Raises OSError."""
    content = {"status": status, "reason": reason, "duration_s": duration_s}
    write_whole(folder / ABANDONED, json.dumps(content))


def abandoned_duration_s(folder: Path) -> float:
    """Return the seconds for which an abandoned attempt held its nodes."""
    try:
        content = json.loads((folder / ABANDONED).read_text(encoding="utf-8"))
        return float(content["duration_s"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0


def abandoned_status(folder: Path) -> str | None:
    """Return the final status of an abandoned attempt, `unknown` if it is unreadable.

    None if the attempt was not abandoned.
    """
    try:
        return str(json.loads((folder / ABANDONED).read_text(encoding="utf-8"))["status"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


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


@dataclass(frozen=True, kw_only=True)
class NeverSubmitted:
    """There is no job and never will be; `status` is the trial's."""

    status: TrialState
    error: str
    state: ClassVar = AttemptState.ENDED


def never_prepared(error: Exception | None) -> NeverSubmitted:
    """Return the decision about an attempt whose files could not be written."""
    if isinstance(error, OSError):
        reason = f"no folder for it: {error.strerror or error}"
        return NeverSubmitted(status=TrialState.CRASHED, error=reason)
    reason = (
        str(error) if isinstance(error, InvalidInput) else f"no job can be written for it: {error}"
    )
    return NeverSubmitted(status=TrialState.REFUSED, error=reason)
