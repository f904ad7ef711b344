"""The local backend: a thin client of its warm process."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from evaluators import processes
from evaluators.local.own_trials import (
    OwnTrial,
    OwnTrials,
    unwritten,
    without_result,
)
from evaluators.trainer.device import device_of_trials
from evaluators.trainer.libraries import environment
from evaluators.trainer.supervisor import HANG_LIMIT_S
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import request_as_dict

WARM = "evaluators.local.warm"
CLOSE_LIMIT_S = 10.0


class LocalBackend(OwnTrials):
    """Runs real trials on this machine with the bundled trainer.

    Attributes:
        hang_limit_s: a trial hangs if none of its ranks has worked for this long; applies to trials
            submitted from now on.
    """

    def __init__(self, *, hang_limit_s: float = HANG_LIMIT_S) -> None:
        super().__init__()
        self.hang_limit_s = hang_limit_s
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
        self._send({"run": request_as_dict(request), "hang_limit_s": self.hang_limit_s})
        return OwnTrial(request=request, end=partial(self._send, {"cancel": request.token}))

    def _send(self, message: Mapping[str, Any]) -> None:
        self._warm = self._warm or _WarmClient()
        self._warm.send(message)

    def _look(self) -> None:
        if self._warm is None:
            return
        for message in self._warm.received():
            if trial := self._trials.get(message["ended"]):
                self._ended(trial, _without_result(trial.request, message["exit_code"]))
        if not self._warm.alive:
            self._warm.close()
            words = self._warm.last_words
            self._warm = None
            for trial in self._running:
                reason = f"the process that runs local trials has ended: {words}"
                self._ended(trial, without_result(trial.request, reason))


def _without_result(request: TrialRequest, code: int) -> TrialOutcome | None:
    """Return the outcome of a trial that left none; `code`: of its supervisor, as `warm` reports
    it."""
    if code > 0:
        return unwritten(request, code)
    if code < 0:
        by = signal.Signals(-code).name
        return without_result(request, f"the trial's supervisor was ended by {by}")
    return None


class _WarmClient:
    """The process of `evaluators.local.warm`, and the socket to it."""

    def __init__(self) -> None:
        self._socket, self._theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        # Compiled operators are loaded from it: its name is not to be guessed by other users.
        self._extensions = tempfile.TemporaryDirectory(prefix="autotune-")
        self.last_words = ""
        self._unread = b""
        self._process: subprocess.Popen[bytes] | None = None
        self.alive = True
        started = threading.Event()
        # The kernel ends the warm process when the thread that started it ends, so that thread
        # must be there for as long as this process is: it can be none of the caller's.
        self._keeper = threading.Thread(
            target=self._keep, args=(started,), name="local-backend", daemon=True
        )
        self._keeper.start()
        started.wait()

    def _keep(self, started: threading.Event) -> None:
        variables = environment(device_of_trials(), extensions=Path(self._extensions.name))
        descriptor = self._theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WARM, str(descriptor), str(os.getpid())],
                env={**processes.environment(), **variables},
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                pass_fds=[descriptor],
                process_group=0,
            )
        finally:
            self._theirs.close()
            started.set()
        self._process.wait()

    def send(self, message: Mapping[str, Any]) -> None:
        """Send one message. `received` detects a process that is gone."""
        with contextlib.suppress(OSError):
            self._socket.sendall((json.dumps(message) + "\n").encode())

    def received(self) -> list[dict[str, Any]]:
        """Return its messages since the last call, and update `alive`."""
        try:
            while part := self._socket.recv(65536, socket.MSG_DONTWAIT):
                self._unread += part
            self.alive = False
        except BlockingIOError:
            pass
        except OSError:
            self.alive = False
        *lines, self._unread = self._unread.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """End it; the kernel ends everything that it started."""
        self._socket.close()
        if self._process:
            self._process.kill()
        self._keeper.join(CLOSE_LIMIT_S)
        self._extensions.cleanup()
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").splitlines()
        self.last_words = lines[-1] if lines else "no error of its own"
