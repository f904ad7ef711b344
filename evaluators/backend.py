"""The interface between a campaign and what runs its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest


class Backend(Protocol):
    """Runs trials. No method blocks for longer than starting a process or one status call.

    Attributes:
        name: as campaigns name it (`simulated`, `local`, …).
        simulated: whether its figures are simulated instead of measured.
    """

    name: str
    simulated: bool

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result.

        Raises:
            OSError: the disk is full; the caller submits it again later.
        """

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return the outcome of each ended trial and the progress of each other one, by token.

        A trial that does not run and left no result in its directory is left out: the caller
        submits it again.
        """

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""

    def close(self) -> None:
        """Detach: what needs this process ends, what a scheduler runs continues."""
