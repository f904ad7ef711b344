"""The seam between a campaign and whatever runs its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest


class Backend(Protocol):
    """Runs trials. Nothing here blocks for longer than starting a process or one status call.

    Attributes:
        name: as campaigns name it (`simulated`, `local`, …).
        simulated: whether its figures are predictions rather than measurements.
    """

    name: str
    simulated: bool

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result: then do nothing.

        Raises:
            OSError: the disk has no room for it; the caller submits it again later.
        """

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """By token: the outcome of each trial that has ended, and how each other one stands.

        A trial that does not run and left no result in its directory is left out: the caller
        submits it again.
        """

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""

    def close(self) -> None:
        """Let go of everything: what needs this process ends, what a scheduler runs goes on."""
