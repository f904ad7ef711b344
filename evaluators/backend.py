"""The interface between a campaign and the backend that runs its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest


class Backend(Protocol):
    """Runs trials. No method blocks for longer than starting a process or one status call.

    Attributes:
        name: as campaigns name it (`simulated`, `local`, …).
        simulated: whether its results are simulated instead of measured.
    """

    name: str
    simulated: bool

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result.

        Raises:
            OSError: the disk is full; the caller submits the trial again later.
        """

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return, by token, the outcome of each ended trial and the progress of each other one.

        A trial that neither runs nor left a result in its directory is missing from the answer; the
        caller submits it again.
        """

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""

    def close(self) -> None:
        """Detach: end what needs this process, and leave what a scheduler runs."""
