"""The local backend: a thin client of its warm process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import evaluators
from autotune.files import is_file_system_failure
from evaluators.local.without_result import unwritten, without_result
from evaluators.trainer.device import device_of_trials
from evaluators.trainer.libraries import environment
from evaluators.trainer.supervisor import HANG_LIMIT_S
from evaluators.trial import RUNNING, TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result, request_as_dict

WARM = "evaluators.local.warm"
CLOSE_LIMIT_S = 10.0


class LocalBackend:
    """Real trials on this machine.

    All that is running belongs to this object: when its process ends, in whatever way, every
    process of every trial ends too. What is finished lies in the trials' directories.

    Attributes:
        hang_limit_s: a trial has hung when none of its ranks has worked for so long; it holds for
            trials that are submitted from now on.
    """

    name = "local"
    simulated = False

    def __init__(self, *, hang_limit_s: float = HANG_LIMIT_S) -> None:
        self.hang_limit_s = hang_limit_s
        self._running: dict[str, TrialRequest] = {}
        self._unwritten: dict[str, TrialOutcome] = {}
        self._warm: _WarmClient | None = None

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
        except OSError as error:
            if is_file_system_failure(error):
                raise
            reason = f"no directory for it: {error}"
            self._unwritten[request.token] = without_result(request, reason)
            return
        self._running[request.token] = request
        self._send({"run": request_as_dict(request), "hang_limit_s": self.hang_limit_s})

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return, by token, the outcome of each ended trial and the progress of each other one.

        A trial that does not run and left no result is left out. One whose result could not be
        written is `crashed`, or `lost` where the disk was full, as long as this object lives.
        """
        self._listen()
        trials: dict[str, TrialOutcome | TrialProgress] = {}
        for request in requests:
            if request.token in self._running:
                trials[request.token] = RUNNING
            elif outcome := read_result(request.directory) or self._unwritten.get(request.token):
                trials[request.token] = outcome
        return trials

    def cancel(self, token: str) -> None:
        """End the trial and all its processes; its outcome becomes `cancelled`."""
        if token in self._running:
            self._send({"cancel": token})

    def close(self) -> None:
        """End everything this backend started; unfinished trials leave no result."""
        if self._warm:
            self._warm.close()
        self._warm = None
        self._running.clear()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._warm = self._warm or _WarmClient()
        if not self._warm.send(message):
            self._listen()

    def _listen(self) -> None:
        """Take in which trials have ended."""
        if self._warm is None:
            return
        for message in self._warm.received():
            self._take_end(message["ended"], message["exit_code"])
        if not self._warm.alive:
            self._warm.close()
            words = self._warm.last_words
            self._warm = None
            reason = f"the process that runs local trials has ended: {words}"
            for token, request in self._running.items():
                self._unwritten[token] = without_result(request, reason)
            self._running.clear()

    def _take_end(self, token: str, code: int) -> None:
        """Take in that the trial's supervisor has ended; `code` as the warm process tells it."""
        request = self._running.pop(token, None)
        if request and code > 0:
            self._unwritten[token] = unwritten(request, code)
        elif request and code < 0:
            reason = f"the trial's supervisor was ended by {signal.Signals(-code).name}"
            self._unwritten[token] = without_result(request, reason)


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
        root = str(Path(evaluators.__file__).parents[1])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        variables = environment(device_of_trials(), extensions=Path(self._extensions.name))
        descriptor = self._theirs.fileno()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", WARM, str(descriptor), str(os.getpid())],
                env=os.environ | variables | {"PYTHONPATH": path},
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

    def send(self, message: Mapping[str, Any]) -> bool:
        """Send it one message; return whether it was there to receive it."""
        try:
            self._socket.sendall((json.dumps(message) + "\n").encode())
        except OSError:
            return False
        return True

    def received(self) -> list[dict[str, Any]]:
        """Return what it has said since the last call; sets `alive`."""
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
        """End it; the kernel ends all that it started."""
        self._socket.close()
        if self._process:
            self._process.kill()
        self._keeper.join(CLOSE_LIMIT_S)
        self._extensions.cleanup()
        with self._errors as errors:
            errors.seek(0)
            lines = errors.read().decode("utf-8", "replace").splitlines()
        self.last_words = lines[-1] if lines else "no error of its own"
