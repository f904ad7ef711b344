"""Trials on this machine of a trainer that an adapter describes."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

from autotune.files import FAILING
from autotune.schemas import TrialState
from evaluators import processes
from evaluators.cluster.profile import ClusterProfile
from evaluators.local.attempt import write_attempt
from evaluators.local.own_trials import (
    OwnTrial,
    OwnTrials,
    unwritten,
    without_result,
)
from evaluators.trial import TrialOutcome, TrialRequest

RUNS_ONE = "evaluators.local.attempt"
ERRORS = "attempt.log"
CLOSE_LIMIT_S = 10.0


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
                self._ended(trial, _without_result(trial, code))


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


def _without_result(trial: OwnTrial, code: int) -> TrialOutcome:
    """Return the outcome of a trial that left none; `code`: of its process."""
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
