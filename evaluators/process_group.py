"""Processes of a trial that end together, and with the process that started the first.

The class is sent to Ray nodes by value (`evaluators.ray.driver`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


class ProcessGroup:
    """A process group with a guard process, which kills the group when this process ends for
    whatever reason: the kernel then closes our end of the guard's pipe."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            ["bash", "-c", "trap '' TERM; read -r _; kill -KILL 0"],
            stdin=subprocess.PIPE,
            process_group=0,
        )

    def start(
        self, words: Sequence[str], *, variables: Mapping[str, str], folder: Path, output: Path
    ) -> subprocess.Popen[bytes]:
        """Start a group in `folder`; append its output to the file `output`."""
        with output.open("ab") as file:
            return subprocess.Popen(
                words,
                env=variables,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=self._guard.pid,
            )

    def ask_to_end(self) -> None:
        os.killpg(self._guard.pid, signal.SIGTERM)

    def end(self) -> None:
        """Kill all processes; may be called again."""
        assert self._guard.stdin
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
