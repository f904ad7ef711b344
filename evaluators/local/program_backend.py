"""Trials on this machine of a program that an adapter describes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import evaluators
from autotune.files import FAILING, is_file_system_failure
from autotune.schemas import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.local.attempt import write_attempt
from evaluators.local.without_result import unwritten, without_result
from evaluators.trial import RUNNING, TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result

RUNS_ONE = "evaluators.local.attempt"
ERRORS = "attempt.log"
CLOSE_LIMIT_S = 10.0


@dataclass(kw_only=True)
class _RunningAttempt:
    request: TrialRequest
    process: subprocess.Popen[bytes]
    cancelled: bool = False


class LocalProgramBackend:
    """Each trial has a process that runs it. All that is running belongs to this object, as with
    `LocalBackend`: when its process ends, in whatever way, every process of every trial ends too.
    """

    name = "local"
    simulated = False

    def __init__(self, profile: ClusterProfile) -> None:
        self._profile = profile
        self._running: dict[str, _RunningAttempt] = {}
        self._unwritten: dict[str, TrialOutcome] = {}

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result: then do nothing.

        Raises:
            OSError: the disk has no room for it; it may come later.
        """
        if request.token in self._running or read_result(request.directory):
            return
        self._unwritten.pop(request.token, None)
        try:
            request.directory.mkdir(parents=True, exist_ok=True)
            write_attempt(request, self._profile)
            process = _started(request.directory)
        except OSError as error:
            if is_file_system_failure(error):
                raise
            reason = f"it could not be started: {error}"
            self._unwritten[request.token] = without_result(request, reason)
            return
        self._running[request.token] = _RunningAttempt(request=request, process=process)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return, by token, the outcome of each ended trial and the progress of each other one.

        A trial that does not run and left no result is left out.
        """
        self._reap()
        trials: dict[str, TrialOutcome | TrialProgress] = {}
        for request in requests:
            if request.token in self._running:
                trials[request.token] = RUNNING
            elif outcome := read_result(request.directory) or self._unwritten.get(request.token):
                trials[request.token] = outcome
        return trials

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""
        if running := self._running.get(token):
            running.cancelled = True
            running.process.terminate()

    def close(self) -> None:
        """End everything this backend started; unfinished trials leave no result."""
        for running in self._running.values():
            _close_input(running.process)
        for running in self._running.values():
            try:
                running.process.wait(CLOSE_LIMIT_S)
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
        self._running.clear()

    def _reap(self) -> None:
        """Take in which trials have ended."""
        for token, running in list(self._running.items()):
            if running.process.poll() is None:
                continue
            _close_input(running.process)
            del self._running[token]
            if read_result(running.request.directory) is None:
                self._unwritten[token] = _ended_without_result(running)


def _started(directory: Path) -> subprocess.Popen[bytes]:
    root = str(Path(evaluators.__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with (directory / ERRORS).open("ab") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", RUNS_ONE, str(directory)],
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=errors,
            stderr=errors,
            process_group=0,
        )


def _close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    with contextlib.suppress(OSError):
        process.stdin.close()


def _ended_without_result(running: _RunningAttempt) -> TrialOutcome:
    if running.cancelled:  # before it could write one
        return without_result(running.request, "cancelled", status=TrialState.CANCELLED)
    if running.process.returncode in FAILING:
        return unwritten(running.request, running.process.returncode)
    try:
        text = (running.request.directory / ERRORS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = text.splitlines()
    words = lines[-1] if lines else f"exit code {running.process.returncode}"
    return without_result(running.request, f"the process that runs the trial has ended: {words}")
