"""The outcome of a trial on this machine that left no result, as its owner tells it."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime

from autotune.files import FAILING
from autotune.schemas import TrialState
from evaluators.disk_room import unwritable
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import LOG, log_tail


def without_result(
    request: TrialRequest, error: str, *, status: TrialState = TrialState.CRASHED
) -> TrialOutcome:
    """Return the outcome of a trial of which nobody but its owner can tell."""
    return TrialOutcome(
        status=status,
        started_at=datetime.now(UTC),
        duration_s=0.0,
        simulated=False,
        error=error,
        log_tail=log_tail(request.directory),
        log_path=str(request.directory / LOG),
        host=socket.gethostname(),
    )


def unwritten(request: TrialRequest, code: int) -> TrialOutcome:
    """Return the outcome of a trial whose files could not be written; `code` is the errno.

    A full disk says nothing about the strategy, and the trial is lost rather than crashed.
    """
    if code in FAILING:
        return without_result(request, unwritable(request.directory, code), status=TrialState.LOST)
    return without_result(request, f"the result could not be written: {os.strerror(code)}")
