"""The part of a backend that does not depend on where trials run.

`TrialBackend` has submit, poll and cancel; `ActiveTrial` is a submitted trial, `AttemptedTrial` one
that is repeated if the cluster or a node is to blame. A backend subclasses the first and one of the
others, and adds only how it starts an attempt and detects its end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, Self, TypeVar

from autotune.schemas.choices import TrialState
from evaluators.attempt.attempt import (
    CANCELLED,
    Attempt,
    abandon,
    attempts_of,
    mark_cancelled,
    without_run,
    write_outcome,
)
from evaluators.attempt.attempt_state import AttemptState, transition
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result

READERS = 4
WAITING = TrialProgress(phase="waiting")


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What every trial of a backend needs; `readers` read logs and results."""

    profile: ClusterProfile
    program: Program
    readers: Executor


@dataclass(kw_only=True, eq=False)
class ActiveTrial:
    """A submitted trial.

    Attributes:
        answer: what `poll` returns.
        cancelled: whether it must end.
    """

    request: TrialRequest
    answer: TrialOutcome | TrialProgress
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def current(self) -> TrialOutcome | TrialProgress:
        return self.answer


@dataclass(kw_only=True, eq=False)
class AttemptedTrial(ActiveTrial):
    """A trial with a folder per attempt, repeated if a failure is not its fault.

    Attributes:
        attempt: the newest.
        state: of the attempt.
        reading: the outcome being read, once the last attempt has ended.
    """

    context: TrialContext
    attempt: Attempt
    answer: TrialOutcome | TrialProgress = WAITING
    state: AttemptState = AttemptState.NEW
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest, context: TrialContext) -> Self:
        """Return the trial at the newest attempt in its folder."""
        attempts = attempts_of(request)
        return cls(
            request=request,
            context=context,
            attempt=attempts[-1] if attempts else Attempt(request=request, number=1),
            cancelled=(request.directory / CANCELLED).exists(),
        )

    @property
    def failures(self) -> int:
        """Return the number of earlier attempts that count against the profile's limit."""
        return self.attempt.number - 1

    def become(self, state: AttemptState) -> None:
        self.state = transition(self.state, state)

    def cancel(self) -> None:
        """Mark the folder first, so that the trial ends whatever happens next."""
        mark_cancelled(self.request)
        super().cancel()

    def current(self) -> TrialOutcome | TrialProgress:
        if self.reading and self.reading.done():
            self.answer = self.reading.result()
        return self.answer

    def settle(self, status: TrialState, error: str) -> None:
        """End a trial that does not run, with this outcome."""
        folder = self.attempt.folder
        self._read(lambda: without_run(folder, status, error))

    def close(self, end: AttemptEnd) -> None:
        """End the trial; its program reads the outcome from the attempt's files."""
        request, folder, program = self.request, self.attempt.folder, self.context.program
        self._read(lambda: program.outcome(request, folder, end))

    def try_again(self, end: AttemptEnd) -> None:
        """Begin another attempt, unless the trial was cancelled or has used up its attempts."""
        most = self.context.profile.retries.attempts
        if self.cancelled:
            self.close(replace(end, status=TrialState.CANCELLED, reason="cancelled"))
        elif self.failures + 1 >= most:
            self.close(replace(end, reason=f"{end.reason}, in each of {most} attempts"))
        else:
            self.abandon(end, status=str(end.status))

    def abandon(self, end: AttemptEnd, *, status: str) -> None:
        """Begin another attempt, and record why."""
        abandon(self.attempt, end, status=status)
        self.begin_next_attempt(f"to be started again: {end.reason}")

    def begin_next_attempt(self, reason: str) -> None:
        """Abandon the current attempt and queue another one."""
        self.become(AttemptState.ABANDONED)
        self.attempt = Attempt(request=self.request, number=self.attempt.number + 1)
        self.state = AttemptState.NEW
        self.answer = TrialProgress(phase="waiting", reason=reason)

    def _read(self, read: Callable[[], TrialOutcome]) -> None:
        """Read the outcome in another thread: a log may be gigabytes long."""
        if self.state is AttemptState.NEW:  # an earlier process began it, or none ever will
            self.become(AttemptState.COMPLETING)
        self.become(AttemptState.ENDED)
        if isinstance(self.answer, TrialProgress):
            self.answer = replace(self.answer, reason="reading what it left")
        self.reading = self.context.readers.submit(write_outcome, self.attempt, read)


T = TypeVar("T", bound=ActiveTrial)


class TrialBackend(ABC, Generic[T]):
    """Submits, polls and cancels trials by token. Thread-safe."""

    simulated = False

    def __init__(self) -> None:
        self._trials: dict[str, T] = {}
        self._lock = threading.RLock()

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is known or has a result.

        Raises:
            OSError: the disk is full; submit it again later.
        """
        with self._lock:
            if self._find(request) is None:
                self._trials[request.token] = self._begin(request)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return the outcome of each ended trial and the progress of each other one, by token.

        Trials that were never submitted are left out.
        """
        with self._lock:
            answers = {request.token: self._answer(request) for request in requests}
        return {token: answer for token, answer in answers.items() if answer}

    def cancel(self, token: str) -> None:
        """End the trial's processes; its outcome becomes `cancelled` once they have ended."""
        with self._lock:
            trial = self._trials.get(token)
            if trial and not trial.cancelled and isinstance(trial.answer, TrialProgress):
                trial.cancel()

    @abstractmethod
    def _begin(self, request: TrialRequest) -> T:
        """Start the trial for the first time."""

    def _resume(self, request: TrialRequest) -> T | None:  # noqa: ARG002
        """Return a trial that was submitted before this object existed, or None."""
        return None

    def _advance(self, trial: T) -> TrialOutcome | TrialProgress:
        """Return the trial's progress or outcome."""
        return trial.current()

    def _forget(self, trial: T) -> None:
        """Drop a trial whose result is written."""

    def _find(self, request: TrialRequest) -> T | TrialOutcome | None:
        """Return the active trial, or else its result."""
        if trial := self._trials.get(request.token):
            return trial
        if outcome := read_result(request.directory):
            return outcome
        if trial := self._resume(request):
            self._trials[request.token] = trial
        return trial

    def _answer(self, request: TrialRequest) -> TrialOutcome | TrialProgress | None:
        found = self._find(request)
        if found is None or isinstance(found, TrialOutcome):
            return found
        answer = self._advance(found)
        if isinstance(answer, TrialOutcome) and read_result(request.directory):
            del self._trials[request.token]
            self._forget(found)
        return answer


def result_readers(name: str) -> ThreadPoolExecutor:
    """Return the threads that read the results of a backend's trials."""
    return ThreadPoolExecutor(READERS, thread_name_prefix=f"{name}-results")
