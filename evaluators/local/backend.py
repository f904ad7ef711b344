"""Trials on this machine: the bundled trainer in a warm process, others in one process each."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from autotune.files import FAILING, is_file_system_failure
from autotune.schemas.choices import TrialState
from evaluators import processes
from evaluators.attempt import ActiveTrial, TrialBackend, without_run
from evaluators.cluster.profile import ClusterProfile
from evaluators.disk_room import unwritable
from evaluators.local.attempt import write_attempt
from evaluators.processes import PipedProcess
from evaluators.trainer.libraries import device_of_trials, environment
from evaluators.trainer.supervisor import HANG_LIMIT_S
from evaluators.trial import (
    RUNNING,
    TrialOutcome,
    TrialProgress,
    TrialRequest,
    read_result,
)


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
    return without_run(request.directory, status, error, host=socket.gethostname())


def unwritten(request: TrialRequest, code: int) -> TrialOutcome:
    """Return the outcome of a trial whose files could not be written; `code` is the errno.

    A full disk says nothing about the strategy: the trial is lost, not crashed.
    """
    if code in FAILING:
        return without_result(request, unwritable(request.directory, code), status=TrialState.LOST)
    return without_result(request, f"the result could not be written: {os.strerror(code)}")


WARM = "evaluators.local.warm"
RUNS_ONE = "evaluators.local.attempt"
ERRORS = "attempt.log"
CLOSE_LIMIT_S = 10.0


class LocalBackend(OwnTrials):
    """Runs real trials on this machine with the bundled trainer.

    Attributes:
        hang_limit_s: a trial hangs if none of its ranks has worked for this long; applies to trials
            submitted from now on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.hang_limit_s = HANG_LIMIT_S
        self._warm: _WarmClient | None = None

    def close(self) -> None:
        """End all processes of this backend; unfinished trials leave no result."""
        with self._lock:
            if self._warm:
                self._warm.close()
            self._warm = None
            for trial in self._running:
                self._ended(trial, None)

    def _start(self, request: TrialRequest) -> OwnTrial:
        self._send({"run": request, "hang_limit_s": self.hang_limit_s})
        return OwnTrial(request=request, end=partial(self._send, {"cancel": request.token}))

    def _send(self, message: Mapping[str, Any]) -> None:
        self._warm = self._warm or _WarmClient()
        self._warm.send(message)

    def _look(self) -> None:
        if self._warm is None:
            return
        for token, code in self._warm.received():
            if trial := self._trials.get(token):
                self._ended(trial, _of_supervisor(trial.request, code))
        if not self._warm.alive:
            self._warm.close()
            words = self._warm.last_words
            self._warm = None
            for trial in self._running:
                reason = f"the process that runs local trials has ended: {words}"
                self._ended(trial, without_result(trial.request, reason))


def _of_supervisor(request: TrialRequest, code: int) -> TrialOutcome | None:
    if code > 0:
        return unwritten(request, code)
    if code < 0:
        by = signal.Signals(-code).name
        return without_result(request, f"the trial's supervisor was ended by {by}")
    return None


class _WarmClient:
    """The process of `evaluators.local.warm`, and the connection to it."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        # Compiled operators are loaded from it: its name is not to be guessed by other users.
        self._extensions = tempfile.TemporaryDirectory(prefix="autotune-")
        self.last_words = ""
        self._process: PipedProcess | None = None
        started = threading.Event()
        # The kernel ends the warm process when the thread that started it ends, so that thread
        # must be there for as long as this process is: it can be none of the caller's.
        self._keeper = threading.Thread(
            target=self._keep, args=(started,), name="local-backend", daemon=True
        )
        self._keeper.start()
        started.wait()
        self.alive = self._process is not None

    def _keep(self, started: threading.Event) -> None:
        variables = environment(device_of_trials(), extensions=Path(self._extensions.name))
        try:
            self._process = PipedProcess(WARM, variables=variables, output=self._errors)
        finally:
            started.set()
        self._process.wait()

    def send(self, message: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            if self._process:
                self._process.pipe.send(message)

    def received(self) -> list[tuple[str, int]]:
        """Return token and exit code of the trials that have ended since the last call, and update
        `alive`."""
        messages = []
        try:
            while self._process and self._process.pipe.poll():
                messages.append(self._process.pipe.recv())
        except (EOFError, OSError):
            self.alive = False
        return messages

    def close(self) -> None:
        """End it; the kernel ends everything that it started."""
        if self._process:
            self._process.pipe.close()
            self._process.kill()
        self._keeper.join(CLOSE_LIMIT_S)
        self._extensions.cleanup()
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").splitlines()
        self.last_words = lines[-1] if lines else "no error of its own"


class LocalProgramBackend(OwnTrials):
    """Runs each trial in a process of its own."""

    def __init__(self, profile: ClusterProfile) -> None:
        super().__init__()
        self._profile = profile
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def close(self) -> None:
        """End all processes of this backend; unfinished trials leave no result."""
        with self._lock:
            for process in self._processes.values():
                _close_input(process)
            for token, process in self._processes.items():
                try:
                    process.wait(CLOSE_LIMIT_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                del self._trials[token]
            self._processes.clear()

    def _start(self, request: TrialRequest) -> OwnTrial:
        write_attempt(request, self._profile)
        process = self._processes[request.token] = _started(request.directory)
        return OwnTrial(request=request, end=process.terminate)

    def _look(self) -> None:
        for token, process in list(self._processes.items()):
            if (code := process.poll()) is not None:
                _close_input(process)
                del self._processes[token]
                trial = self._trials[token]
                self._ended(trial, _of_process(trial, code))


def _started(directory: Path) -> subprocess.Popen[bytes]:
    with (directory / ERRORS).open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", RUNS_ONE, str(directory)],
            env=processes.environment(),
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            process_group=0,
        )


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    with contextlib.suppress(OSError):
        process.stdin.close()


def _of_process(trial: OwnTrial, code: int) -> TrialOutcome:
    if trial.cancelled:  # before it could write one
        return without_result(trial.request, "cancelled", status=TrialState.CANCELLED)
    if code in FAILING:
        return unwritten(trial.request, code)
    try:
        text = (trial.request.directory / ERRORS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = text.splitlines()
    words = lines[-1] if lines else f"exit code {code}"
    return without_result(trial.request, f"the process that runs the trial has ended: {words}")
