"""Trials whose processes belong to the process that submitted them."""

from __future__ import annotations

import os
import socket
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.files import FAILING, is_file_system_failure
from autotune.schemas import TrialState
from evaluators.attempt.attempt import without_run
from evaluators.attempt.driver import ActiveTrial, TrialBackend
from evaluators.disk_room import unwritable
from evaluators.trial import RUNNING, TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result


@dataclass(kw_only=True, eq=False)
class OwnTrial(ActiveTrial):
    """A trial on this machine; `end` asks its processes to end."""

    answer: TrialOutcome | TrialProgress = RUNNING
    end: Callable[[], object]

    def cancel(self) -> None:
        super().cancel()
        self.end()


class OwnTrials(TrialBackend[OwnTrial]):
    """Trials that end when this object's process does.

    Results are in the trials' directories. A trial that left none is `crashed`, or `lost` if the
    disk was full, as long as this object lives.
    """

    name = "local"

    def submit(self, request: TrialRequest) -> None:
        with self._lock:
            trial = self._trials.get(request.token)
            if trial and trial not in self._running:  # it left no result, and may be run again
                del self._trials[request.token]
            super().submit(request)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        with self._lock:
            self._look()
            return super().poll(requests)

    @abstractmethod
    def _start(self, request: TrialRequest) -> OwnTrial:
        """Start the trial's processes. Raises OSError."""

    @abstractmethod
    def _look(self) -> None:
        """Record which trials have ended."""

    def _begin(self, request: TrialRequest) -> OwnTrial:
        try:
            request.directory.mkdir(parents=True, exist_ok=True)
            return self._start(request)
        except OSError as error:
            if is_file_system_failure(error):
                raise
            outcome = without_result(request, f"it could not be started: {error}")
            return OwnTrial(request=request, answer=outcome, end=lambda: None)

    @property
    def _running(self) -> list[OwnTrial]:
        return [trial for trial in self._trials.values() if trial.answer is RUNNING]

    def _ended(self, trial: OwnTrial, otherwise: TrialOutcome | None) -> None:
        """Record that it has ended. It is started again if it left no result and there is none
        `otherwise`."""
        if otherwise is None or read_result(trial.request.directory):
            del self._trials[trial.request.token]
        else:
            trial.answer = otherwise


def without_result(
    request: TrialRequest, error: str, *, status: TrialState = TrialState.CRASHED
) -> TrialOutcome:
    """Return the outcome of a trial that left no result, which only its owner knows."""
    return without_run(request.directory, status, error, host=socket.gethostname())


def unwritten(request: TrialRequest, code: int) -> TrialOutcome:
    """Return the outcome of a trial whose files could not be written; `code` is the errno.

    A full disk says nothing about the strategy: the trial is lost, not crashed.
    """
    if code in FAILING:
        return without_result(request, unwritable(request.directory, code), status=TrialState.LOST)
    return without_result(request, f"the result could not be written: {os.strerror(code)}")
