"""The runner as a child process of `autotune serve`, restarted when it dies."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import structlog

from server.data_folder import closed_file, closed_folder
from server.settings import Settings

FIRST_DELAY_S = 0.5
LONGEST_DELAY_S = 30.0
HEALTHY_AFTER_S = 30.0
WATCH_INTERVAL_S = 0.1
STOP_TIMEOUT_S = 15.0
EXIT_REPLACED = 76
"""Exit code of a runner whose database was deleted or replaced."""

log = structlog.get_logger(__name__)


class RunnerSupervisor:
    """Keeps one runner alive from `start` to `stop`; its log is `runner.log` in the data folder.

    The thread that forks the runner also watches it: the kernel ends a child together with the
    thread that forked it, so the thread must live as long as the runner.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = threading.Event()
        self._started = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name="runner-watch", daemon=True)

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    @property
    def log_path(self) -> Path:
        return self._settings.data_dir / "runner.log"

    def start(self) -> None:
        closed_folder(self._settings.data_dir)
        self._thread.start()
        self._started.wait()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        delay_s = FIRST_DELAY_S
        while not self._stopping.is_set():
            began = time.monotonic()
            code = self._run_once()
            if self._stopping.is_set():
                return
            if code == EXIT_REPLACED:  # a new one would start over in an empty database
                log.error("database_replaced", runner="not started again")
                return
            if time.monotonic() - began > HEALTHY_AFTER_S:
                delay_s = FIRST_DELAY_S
            log.warning("runner_ended", exit_code=code, starts_again_in_s=delay_s)
            self._stopping.wait(delay_s)
            delay_s = min(2 * delay_s, LONGEST_DELAY_S)

    def _run_once(self) -> int:
        """Run one runner until it ends or is stopped; return its exit code.

        Its output before it has opened its log goes to the log as well.
        """
        try:
            with closed_file(self.log_path) as output:
                child = spawn(self._settings, output)
        finally:
            self._started.set()
        self._child = child
        while child.poll() is None and not self._stopping.wait(WATCH_INTERVAL_S):
            pass
        if child.poll() is None:
            child.terminate()
        try:
            return child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            return child.wait()


def spawn(settings: Settings, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a runner that dies with the calling thread.

    It has its own session, so that it does not receive Ctrl-C.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "server.runner", "--parent", str(os.getpid())],
        env=os.environ | settings.environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )
