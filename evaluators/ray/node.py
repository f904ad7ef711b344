"""One node of a trial, as an actor: it runs the node's ranks, and on the first node the script.

It is sent to the cluster by value, so nodes need only the standard library and Ray, no package of
ours.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from evaluators.file_hole import give_back_handed_on
from evaluators.process_group import ProcessGroup
from evaluators.ray.node_environment import plain_environment
from evaluators.ray.rank_step import (
    AS_RANKS,
    AS_RANKS_SCRIPT,
    INTERPRETER,
    LOOK_S,
    SOCKET,
    RankStep,
    accepted,
    listener_in,
)

LOG = "trial.log"
SCRIPT = "body.sh"
LONGEST_WAIT_S = 1.0
"""That a call for output waits for some."""
KILL_AFTER_S = 15.0
"""How long a trial has after its time limit to end by itself."""
MOST_AT_ONCE = 1 << 20
MOST_OF_A_FILE = 16 << 20
"""Bytes of a file that is brought back."""


def own_folder(folder: Path) -> None:
    """Create a folder for this user alone. Raises OSError, also if it belongs to another user."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder} is somebody else's")


@dataclass(kw_only=True)
class NodeRanks:
    """The ranks of one step on one node."""

    group: ProcessGroup
    processes: list[subprocess.Popen[bytes]]
    output: Path
    told: int = 0
    gone: int = 0

    def exit_code(self) -> int | None:
        """Return the first failure's code, 0 once all have succeeded, None while they run."""
        codes = [process.poll() for process in self.processes]
        if failed := [code for code in codes if code]:
            return failed[0] if failed[0] > 0 else 128 - failed[0]
        return None if None in codes else 0


class TrialNode:
    """An actor that has one bundle of a trial's placement group."""

    def __init__(self) -> None:
        self._ranks: dict[int, NodeRanks] = {}
        self._script: ProcessGroup | None = None
        self._gone: dict[str, int] = {}

    def where(self) -> dict[str, str]:
        """Return its node's id, host and address."""
        return {
            "id": ray.get_runtime_context().get_node_id(),
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
        }

    def prepare(self, folder: str, files: Mapping[str, bytes], shared: Mapping[str, bytes]) -> None:
        """Write the attempt's files, and shared files that are missing, by path.

        Other nodes of the trial may share the folder.
        """
        place = Path(folder)
        own_folder(place.parents[1])
        own = {**files, AS_RANKS: AS_RANKS_SCRIPT.encode()}
        wanted = {place / name: content for name, content in own.items()}
        wanted |= {Path(path): content for path, content in shared.items()}
        for path, content in wanted.items():
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
                partial.write_bytes(content)
                partial.replace(path)

    def clear(self, folder: str) -> None:
        """Remove the attempt's folder, after all its processes have ended."""
        for number in list(self._ranks):
            self.end_ranks(number)
        self._gone.pop(folder, None)
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another node of this host may have done it
            Path(folder).parent.rmdir()

    # What every node does.

    def start_ranks(
        self,
        number: int,
        words: Sequence[str],
        *,
        folder: str,
        variables: Mapping[str, str],
        node: int,
        nodes: int,
        ranks: int,
    ) -> None:
        """Start step `number` on this node, the `node`th of `nodes` with `ranks` ranks each.

        Each rank gets its place in Slurm's variables, which programs read.
        """
        group, output = ProcessGroup(), Path(folder) / f"ranks-{number}-{node}.log"
        output.touch()
        step = NodeRanks(group=group, processes=[], output=output)
        first = node * ranks
        common = {
            "SLURM_NTASKS": str(nodes * ranks),
            "SLURM_TASKS_PER_NODE": str(ranks),
            "SLURM_NODEID": str(node),
            "SLURM_GTIDS": ",".join(str(first + local) for local in range(ranks)),
            "SLURMD_NODENAME": socket.gethostname(),
        }
        self._ranks[number] = step
        for local in range(ranks):
            own = {"SLURM_PROCID": str(first + local), "SLURM_LOCALID": str(local)}
            environment = {**plain_environment(), **variables, **common, **own}
            step.processes.append(
                group.start(words, variables=environment, folder=Path(folder), output=output)
            )

    def output_of_ranks(self, number: int) -> tuple[bytes, int | None]:
        """Return their output since the last call, and their exit code at the end."""
        step = self._ranks[number]
        until = time.monotonic() + LONGEST_WAIT_S
        while True:
            code = step.exit_code()
            if code is not None:
                step.group.end()
            printed = _part_of(step.output, step.told)
            if printed or code is not None or time.monotonic() > until:
                step.told += len(printed)
                step.gone = _handed_on(step.output, step.told, gone=step.gone)
                return printed, None if len(printed) == MOST_AT_ONCE else code
            time.sleep(LOOK_S)

    def end_ranks(self, number: int) -> None:
        """Terminate them, and kill those that do not end in time."""
        step = self._ranks[number]
        if step.exit_code() is None:
            step.group.ask_to_end()
            until = time.monotonic() + LONGEST_WAIT_S
            while step.exit_code() is None and time.monotonic() < until:
                time.sleep(LOOK_S)
        step.group.end()

    def end_all(self) -> None:
        """Kill all processes here."""
        groups = [step.group for step in self._ranks.values()]
        for group in (self._script, *groups):
            if group:
                group.end()

    # What the first node does besides.

    def run(
        self,
        folder: str,
        *,
        nodes: Sequence[Any],
        ranks: int,
        variables: Mapping[str, str],
        time_limit_s: float,
    ) -> dict[str, Any]:
        """Run the script and its steps on all nodes; return how it ended."""
        group = self._script = ProcessGroup()
        try:
            return self._run(group, Path(folder), nodes, ranks, variables, time_limit_s)
        finally:
            group.end()
            self._script = None

    def _run(
        self,
        group: ProcessGroup,
        place: Path,
        nodes: Sequence[Any],
        ranks: int,
        variables: Mapping[str, str],
        time_limit_s: float,
    ) -> dict[str, Any]:
        began_at, began = time.time(), time.monotonic()
        timed_out = False
        with listener_in(place.parents[1]) as (listener, path):
            own = {SOCKET: str(path), INTERPRETER: sys.executable}
            given = {**plain_environment(), **variables, **own}
            script = group.start(
                ["bash", SCRIPT], variables=given, folder=place, output=place / LOG
            )
            step: RankStep | None = None
            number = 0
            while (code := script.poll()) is None:
                over_s = time.monotonic() - began - time_limit_s
                if over_s > 0 and not timed_out:
                    timed_out = True
                    group.ask_to_end()
                    if step:
                        step.end()
                elif over_s > KILL_AFTER_S:
                    group.end()
                if step is None and (connection := accepted(listener)):
                    number += 1
                    shape = {"folder": str(place), "nodes": len(nodes), "ranks": ranks}
                    step = RankStep.begin(connection, number, nodes, shape=shape)
                elif step and not step.goes_on():
                    step = None
            if step:
                step.end()
        return {
            "exit_code": code if code >= 0 else 128 - code,
            "began_at": began_at,
            "ended_at": began_at + time.monotonic() - began,  # however the clock was set
            "timed_out": timed_out,
        }

    def log(self, folder: str, offset: int) -> bytes:
        """Return the script's log from `offset` on; while it runs, wait a moment for output.
        Earlier parts were fetched and are freed."""
        gone = self._gone.get(folder, 0)
        self._gone[folder] = _handed_on(Path(folder) / LOG, offset, gone=gone)
        until = time.monotonic() + LONGEST_WAIT_S
        while True:
            waits = self._script and time.monotonic() < until
            if (part := _part_of(Path(folder) / LOG, offset)) or not waits:
                return part
            time.sleep(LOOK_S)

    def left(self, folder: str) -> dict[str, bytes]:
        """Return the files in the folder by name, without logs and large files."""
        found = {}
        for path in Path(folder).iterdir():
            small = path.is_file() and path.stat().st_size <= MOST_OF_A_FILE
            if small and path.suffix != ".log":
                found[path.name] = path.read_bytes()
        return found


def _part_of(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(MOST_AT_ONCE)
    except FileNotFoundError:
        return b""


def _handed_on(path: Path, offset: int, *, gone: int) -> int:
    """Free the part of a log before an offset, as `give_back_handed_on` does."""
    try:
        with path.open("r+b", buffering=0) as file:
            return give_back_handed_on(file.fileno(), offset, gone=gone)
    except FileNotFoundError:
        return gone
