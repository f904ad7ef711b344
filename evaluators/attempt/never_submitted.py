"""An attempt that was never submitted, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from autotune.schemas import TrialState
from evaluators.attempt.attempt_state import AttemptState
from search_spaces.errors import InvalidInput


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
