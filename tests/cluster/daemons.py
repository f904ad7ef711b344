"""The daemons of a cluster, through their keeper; and what they have started."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.cluster import keeper

PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
NODE_MARK = "SLURMD_NODENAME"  # Slurm gives it to tasks, but not to its step daemons
FOREIGN = ("SLURM", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SACCT_", "SCANCEL_")


class Daemons:
    """They end with this process, in whatever way it ends. Safe to use from several threads."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._environment = {**clean_environment(), **environment, "PATH": PATH}
        self._orders = threading.Lock()
        self._keeper = subprocess.Popen(
            [sys.executable, "-E", "-S", keeper.__file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def start(self, name: str, command: list[str], **variables: str) -> None:
        path = shutil.which(command[0], path=PATH) or command[0]
        environment = {**self._environment, **variables}
        self._order("start", name=name, command=[path, *command[1:]], environment=environment)

    def end(self, name: str, number: int) -> None:
        """It has ended when this returns."""
        self._order("end", name=name, number=number)

    def is_up(self, name: str) -> bool:
        return self.pid(name) is not None

    def pid(self, name: str) -> int | None:
        """None while it does not run."""
        pid: int | None = self._order("pid", name=name)["pid"]
        return pid

    def close(self) -> None:
        """No daemon, no process of a job, and no folder is left when it returns."""
        assert self._keeper.stdin
        assert self._keeper.stdout
        self._keeper.stdin.close()
        self._keeper.wait()
        self._keeper.stdout.close()

    def processes(self, node: str) -> list[int]:
        """What Slurm started on that node and still runs, Slurm's own step daemons first.

        Its slurmd, named as the node, has to be started with the same mark.
        """
        pids = []
        slurmd = self.pid(node)
        for pid in keeper.descendants(self._keeper.pid):
            with contextlib.suppress(OSError):
                if f"{NODE_MARK}={node}".encode() in _environment_of(pid) and pid != slurmd:
                    pids.append(pid)
        return sorted(pids, key=lambda pid: _name_of(pid) != "slurmstepd")

    def _order(self, what: str, **details: Any) -> dict[str, Any]:
        assert self._keeper.stdin
        assert self._keeper.stdout
        with self._orders:
            print(json.dumps({"do": what, **details}), file=self._keeper.stdin, flush=True)
            answer: dict[str, Any] = json.loads(self._keeper.stdout.readline())
        return answer


def foreign_variables() -> list[str]:
    """What tells Slurm's commands about another cluster, or about the allocation we are in."""
    return [name for name in os.environ if name.startswith(FOREIGN)]


def clean_environment() -> dict[str, str]:
    foreign = foreign_variables()
    return {key: value for key, value in os.environ.items() if key not in foreign}


def kill(pids: Sequence[int]) -> None:
    """Stop all before the first is killed: on a busy machine a script went on, and reported, after
    its command had been killed and before itself was."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


def _environment_of(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
