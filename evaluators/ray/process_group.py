"""Processes of a trial on one node, which end together.

It is sent to the cluster by value, as `evaluators.ray.node` is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# What tells of the process that set it, and not of what is to be run.
_OF_RAY = ("RAY_", "SLURM")
OWN_VARIABLES = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PWD", "OLDPWD", "SHLVL", "_"})


def plain_environment() -> dict[str, str]:
    """Return this process's variables but for those by which Ray, or a job that it is in, speaks
    to it; Ray's own Python comes first on the PATH."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_RAY) and name not in OWN_VARIABLES
    }
    path = [os.path.dirname(sys.executable), plain.get("PATH", os.defpath)]
    return plain | {"PATH": os.pathsep.join(path)}


class ProcessGroup:
    """Processes that end with the one that started them, however that ends."""

    def __init__(self) -> None:
        # The kernel closes our end of its pipe in any case.
        self._guard = subprocess.Popen(
            ["bash", "-c", "trap '' TERM; read -r _; kill -KILL 0"],
            stdin=subprocess.PIPE,
            process_group=0,
        )

    def start(
        self, words: Sequence[str], *, variables: Mapping[str, str], folder: Path, output: Path
    ) -> subprocess.Popen[bytes]:
        """Start one in `folder`; what it prints is added to the file `output`."""
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
        """Kill all; may be called again."""
        assert self._guard.stdin
        with contextlib.suppress(OSError):
            self._guard.stdin.close()
        self._guard.wait()
