"""Attempts at a trial: their states, their folders, and the part of a backend that drives them.

    <trials>/ended/<name>          an empty file for each attempt that has ended and is not yet read
    <trials>/failed-nodes          a line for each node that failed under an attempt: node and name
    <trials>/<token>/result.json   the trial's outcome, once it is known
    <trials>/<token>/cancelled     it must end
    <trials>/<token>/attempt-1/    one attempt; a later one follows a node's failure

Each kind of backend documents its files in an attempt's folder; all have:

    trial.log                       the output
    abandoned.json                  abandoned, and why (`write_abandoned`)

A trial that is a job, a trial of pilot mode, the allocation of pilot mode and a trial on Ray all go
through the states of `AttemptState`, and change them only by `transition`; docs/cluster.md draws
them. A trial itself is `pending` (`TrialState`) until its last attempt has ENDED. After RUNNING it
may then be `ok`, `oom`, `timeout`, `crashed` or `cancelled`. If the cluster or a node is to blame,
the attempt is ABANDONED and another one follows; when these are used up, the trial is `node_fail`,
`preempted` or `lost`. One that never ran may be `refused`.

A backend subclasses `TrialBackend`, which has submit, poll and cancel, or `AttemptBackend`, whose
trials are found again, or `FollowingBackend`, which has a thread for them; and `ActiveTrial`, a
submitted trial, or `AttemptedTrial`, one that is repeated if the cluster or a node is to blame. It
adds only how it starts an attempt and detects its end.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Generic, Self, TypeVar

from autotune.files import is_file_system_failure, write_whole
from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import environment_lines
from evaluators.failed_nodes import hardware_fault, note_failed_nodes, place_of
from evaluators.program import AttemptEnd, Launcher, Program
from evaluators.program.support import program_of
from evaluators.trial import (
    LOG,
    TrialOutcome,
    TrialProgress,
    TrialRequest,
    log_tail,
    read_result,
    write_result,
)
from search_spaces.errors import InvalidInput

log = logging.getLogger(__name__)

PATIENCE_S = 120.0
PAUSE_S = 1.0


class AttemptState(StrEnum):
    """State of an attempt."""

    NEW = "new"
    """Nothing was submitted yet, or its folder has not been read."""
    SUBMITTING = "submitting"
    """It is in our own queue, being handed over, or does not show up on the cluster yet."""
    PENDING = "pending"
    """It waits for nodes: in the cluster's queue, in a suspended job, or for an allocation's."""
    RUNNING = "running"
    """It has nodes."""
    COMPLETING = "completing"
    """Its job or its processes have gone, and it is not yet known why; its nodes may be taken."""
    ENDED = "ended"
    """Its end is known; its results are being read, or have been."""
    ABANDONED = "abandoned"
    """It ended through no fault of the trial: another attempt may follow."""


_BEGUN = frozenset(AttemptState) - {AttemptState.NEW}
_FINAL = frozenset({AttemptState.ENDED, AttemptState.ABANDONED})

TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    # An attempt of an earlier process may be found in any state.
    AttemptState.NEW: _BEGUN - {AttemptState.ENDED},
    # Backwards too: a controller that was killed has forgotten what it had not written down, and
    # runs again what had ended; a job is suspended, or put back before its script began.
    **{state: _BEGUN - {state} for state in _BEGUN - _FINAL},
    **dict.fromkeys(_FINAL, frozenset()),
}
"""What each state may become next. What is decided stays so."""

WAITING = frozenset({AttemptState.NEW, AttemptState.SUBMITTING, AttemptState.PENDING})
"""A trial waits in these states (`TrialProgress.phase`), and runs in the others."""
HOLDING_NODES = frozenset({AttemptState.RUNNING, AttemptState.COMPLETING})
"""The nodes of an attempt are not free in these states."""


def transition(state: AttemptState, to: AttemptState) -> AttemptState:
    """Return `to`, which may be the same state.

    Raises:
        ValueError: `state` may not become it.
    """
    if to is not state and to not in TRANSITIONS[state]:
        raise ValueError(f"an attempt that is {state} cannot become {to}")
    return to


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
        return self.request.directory.parent / ENDED

    @property
    def end_notice(self) -> Path:
        return self.ended_folder / self.name

    @property
    def log(self) -> Path:
        return self.folder / LOG

    @property
    def following(self) -> Attempt:
        return replace(self, number=self.number + 1)


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Return the attempts that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]


BODY_SCRIPT = "body.sh"


def body_script(
    request: TrialRequest,
    folder: Path,
    profile: ClusterProfile,
    program: Program,
    launcher: Launcher,
    *lines: str,
) -> str:
    """Return the bash that sets up the environment, runs these lines and trains, in `folder`.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
    """
    commands = program.commands(request, folder, launcher)
    return "\n".join([*environment_lines(profile), *lines, commands, ""])


ABANDONED = "abandoned.json"


def write_abandoned(folder: Path, *, status: str, reason: str, duration_s: float) -> None:
    content = {"status": status, "reason": reason, "duration_s": duration_s}
    write_whole(folder / ABANDONED, json.dumps(content))


@dataclass(frozen=True)
class Abandoned:
    """An abandoned attempt: its final status, and the seconds for which it held its nodes."""

    status: str = "unknown"
    duration_s: float = 0.0


def read_abandoned(folder: Path) -> Abandoned | None:
    """Return the record of an abandoned attempt, or None if the attempt was not abandoned."""
    try:
        content = json.loads((folder / ABANDONED).read_text(encoding="utf-8"))
        return Abandoned(str(content["status"]), float(content["duration_s"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return Abandoned()


def write_outcome(attempt: Attempt, read: Callable[[], TrialOutcome]) -> TrialOutcome:
    """Return the trial's outcome and write it, then remove the notice of its end.

    Args:
        attempt: the last one. Node time of earlier ones counts, too.
        read: reads the attempt's files, which may take long.
    """
    outcome = _read_patiently(attempt, read)
    earlier_s = sum(
        abandoned.duration_s
        for earlier in attempts_of(attempt.request)
        if earlier.number < attempt.number and (abandoned := read_abandoned(earlier.folder))
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
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return read()
        except Exception as error:
            failing = is_file_system_failure(error)
            if failing and time.monotonic() < until:
                time.sleep(PAUSE_S)
                continue
            log.exception("the files of a trial could not be read")
            reason = f"its files could not be read: {type(error).__name__}: {error}"
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
        reason = f"its folder cannot be created: {error.strerror or error}"
        return NeverSubmitted(status=TrialState.CRASHED, error=reason)
    reason = (
        str(error)
        if isinstance(error, InvalidInput)
        else f"its job script cannot be written: {error}"
    )
    return NeverSubmitted(status=TrialState.REFUSED, error=reason)


READERS = 4
NOT_STARTED = TrialProgress(phase="waiting")


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
    answer: TrialOutcome | TrialProgress = NOT_STARTED
    state: AttemptState = AttemptState.NEW
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest, context: TrialContext) -> Self:
        """Return the trial at the newest attempt in its folder, or after one that is abandoned."""
        *_, attempt = [Attempt(request=request, number=1), *attempts_of(request)]
        # On NFS a listing sees what a look for one file may not see yet.
        if attempt.folder.exists() and ABANDONED in os.listdir(attempt.folder):
            attempt = attempt.following
        cancelled = (request.directory / CANCELLED).exists()
        return cls(request=request, context=context, attempt=attempt, cancelled=cancelled)

    @property
    def failures(self) -> int:
        return self.attempt.number - 1

    def become(self, state: AttemptState) -> None:
        self.state = transition(self.state, state)

    def cancel(self) -> None:
        """Mark the folder first, so that the trial ends whatever happens next."""
        try:
            self.request.directory.mkdir(parents=True, exist_ok=True)
            (self.request.directory / CANCELLED).touch()
        except OSError:
            log.warning("a cancelled trial could not be marked as such", exc_info=True)
        super().cancel()

    def current(self) -> TrialOutcome | TrialProgress:
        if self.reading and self.reading.done():
            self.answer = self.reading.result()
        return self.answer

    def settle(self, status: TrialState, error: str) -> None:
        folder = self.attempt.folder
        self._read(lambda: without_run(folder, status, error))

    def close(self, end: AttemptEnd) -> None:
        """End the trial; its program reads the outcome from the attempt's files.

        After a fault of the hardware another attempt begins.
        """
        request, folder, program = self.request, self.attempt.folder, self.context.program
        fault = None if self.cancelled else hardware_fault(program, request, folder, end)
        if fault is None:
            self._read(lambda: program.outcome(request, folder, end))
            return
        hosts, nodes = self._nodes(end)
        place = place_of(fault, hosts, ranks_per_node=request.machine.gpus_per_node)
        reason = f"a fault of the hardware: {fault.error}"
        if place is not None:
            trials = self.attempt.ended_folder.parent
            note_failed_nodes(trials, name=self.attempt.name, nodes=[nodes[place]])
            reason = f"a fault of the hardware of {hosts[place]}: {fault.error}"
        self.try_again(replace(end, status=TrialState.NODE_FAIL, reason=reason))

    def _nodes(self, end: AttemptEnd) -> tuple[Sequence[str], Sequence[str]]:
        hosts = end.host.split(",")
        return hosts, hosts

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
        """Begin another attempt, record why, and remove the notice of this one's end."""
        attempt, reason = self.attempt, end.reason
        log.warning("%s: %s; it is started again", attempt.name, reason)
        try:
            write_abandoned(attempt.folder, status=status, reason=reason, duration_s=end.duration_s)
            attempt.end_notice.unlink(missing_ok=True)
        except OSError:
            log.warning("an attempt could not be marked as abandoned", exc_info=True)
        self.begin_next_attempt(f"to be started again: {end.reason}")

    def begin_next_attempt(self, reason: str) -> None:
        """Abandon the current attempt and queue another one."""
        self.become(AttemptState.ABANDONED)
        self.attempt = self.attempt.following
        self.state = AttemptState.NEW
        self.answer = TrialProgress(phase="waiting", reason=reason)

    def _read(self, read: Callable[[], TrialOutcome]) -> None:
        if self.state is AttemptState.NEW:  # an earlier process began it, or none ever will
            self.become(AttemptState.COMPLETING)
        self.become(AttemptState.ENDED)
        if isinstance(self.answer, TrialProgress):
            self.answer = replace(self.answer, reason="reading its results")
        self.reading = self.context.readers.submit(write_outcome, self.attempt, read)


T = TypeVar("T", bound=ActiveTrial)


class TrialBackend(ABC, Generic[T]):
    """Submits, polls and cancels trials by token (`evaluators.trial.Backend`). Thread-safe."""

    simulated = False

    def __init__(self) -> None:
        self._trials: dict[str, T] = {}
        self._lock = threading.RLock()

    def submit(self, request: TrialRequest) -> None:
        with self._lock:
            if self._find(request) is None:
                self._trials[request.token] = self._begin(request)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        with self._lock:
            answers = {request.token: self._answer(request) for request in requests}
        return {token: answer for token, answer in answers.items() if answer}

    def cancel(self, token: str) -> None:
        with self._lock:
            trial = self._trials.get(token)
            if trial and not trial.cancelled and isinstance(trial.answer, TrialProgress):
                trial.cancel()

    @abstractmethod
    def _begin(self, request: TrialRequest) -> T:
        """Start the trial, or go on with one that has attempts."""

    def _resume(self, request: TrialRequest) -> T | None:  # noqa: ARG002
        return None

    def _advance(self, trial: T) -> TrialOutcome | TrialProgress:
        return trial.current()

    def _forget(self, trial: T) -> None:
        """Drop a trial whose result is written."""

    def _find(self, request: TrialRequest) -> T | TrialOutcome | None:
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


A = TypeVar("A", bound=AttemptedTrial)


class AttemptBackend(TrialBackend[A]):
    """Runs trials that a later object finds again by their folders.

    Args:
        program: the trainer. Default: the profile's.
    """

    name: str

    def __init__(self, profile: ClusterProfile, program: Program | None) -> None:
        super().__init__()
        self._profile = profile
        self._program = program or program_of(profile)
        self._readers = self._new_readers()

    def close(self) -> None:
        """Drop all trials, which keep running, after the results that are being read."""
        with self._lock:
            self._readers.shutdown(wait=True, cancel_futures=True)
            self._readers = self._new_readers()
            self._trials.clear()

    def _resume(self, request: TrialRequest) -> A | None:
        return self._begin(request) if attempts_of(request) else None

    def _new_readers(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(READERS, thread_name_prefix=f"{self.name}-results")


class FollowingBackend(AttemptBackend[A]):
    """Follows its trials in one thread, from the first on."""

    def __init__(self, profile: ClusterProfile, program: Program | None) -> None:
        super().__init__(profile, program)
        self._thread: threading.Thread | None = None
        self._wake, self._closing = threading.Event(), threading.Event()

    def cancel(self, token: str) -> None:
        super().cancel(token)
        self._wake.set()

    def close(self) -> None:
        self._end_thread()
        super().close()

    @abstractmethod
    def _round(self, trials: Sequence[A]) -> float | None:
        """Bring the trials forward; return the seconds until the next round, None without work."""

    def _last_round(self) -> None:
        """Do what remains before the thread ends."""

    def _follow(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name=f"{self.name}-trials", daemon=True
            )
            self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            with self._lock:
                trials = list(self._trials.values())
            pause_s: float | None = PAUSE_S
            try:
                pause_s = self._round(trials)
            except Exception:
                log.exception("an unexpected error while following trials")
            self._wake.wait(pause_s)
        self._last_round()

    def _end_thread(self) -> None:
        self._closing.set()
        self._wake.set()
        if self._thread:
            self._thread.join()
            self._thread = None
        self._closing.clear()
