"""One node of a trial, as an actor: it runs the node's ranks, and on the first node the script.

It is sent to the cluster by value, so nodes need only the standard library and Ray, no package of
ours.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from evaluators.processes import ProcessGroup

# Variables of the process that set them, which must not reach the trial.
_OF_RAY = ("RAY_", "SLURM")
OWN_VARIABLES = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PWD", "OLDPWD", "SHLVL", "_"})


def plain_environment() -> dict[str, str]:
    """Return this process's environment without the variables of Ray or of a surrounding job; Ray's
    own Python comes first on the PATH."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_RAY) and name not in OWN_VARIABLES
    }
    path = [os.path.dirname(sys.executable), plain.get("PATH", os.defpath)]
    return plain | {"PATH": os.pathsep.join(path)}


AS_RANKS = "as_ranks.sh"
"""`bash as_ranks.sh WORDS…` in the script runs the words as every rank; as srun does, it prints
what they print, ends all with the first that fails, and ends with its exit code."""
SOCKET, INTERPRETER = "AUTOTUNE_RANKS", "AUTOTUNE_PYTHON"

FRAME = "!ci"
OUTPUT, CODE = b"o", b"c"
_FOR_SCRIPT = frozenset({SOCKET, INTERPRETER})
LOOK_S = 0.02

# On SIGTERM it ends the ranks and waits for them; otherwise they would disturb the next run.
AS_RANKS_SCRIPT = f"""\
exec "${INTERPRETER}" - "$@" <<'END'
import json, os, signal, socket, struct, sys
ranks = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(os.environ["{SOCKET}"]))  # a socket's address is short
ranks.connect(os.path.basename(os.environ["{SOCKET}"]))
signal.signal(signal.SIGTERM, lambda *_: ranks.shutdown(socket.SHUT_WR))
command = {{"words": sys.argv[1:], "variables": dict(os.environ)}}
ranks.sendall(json.dumps(command).encode() + b"\\n")
answer = ranks.makefile("rb")
while len(head := answer.read({struct.calcsize(FRAME)})) == {struct.calcsize(FRAME)}:
    kind, number = struct.unpack("{FRAME}", head)
    if kind == {CODE!r}:
        sys.exit(number)
    sys.stdout.buffer.write(answer.read(number))
    sys.stdout.flush()
sys.exit(1)
END
"""


@dataclass(kw_only=True)
class RankStep:
    """A command that runs as every rank, and the connection to the script that waits for it."""

    connection: socket.socket
    number: int
    nodes: Sequence[Any]
    reading: dict[Any, Any] = field(default_factory=dict)
    code: int = 0
    ending: bool = False

    @classmethod
    def begin(
        cls,
        connection: socket.socket,
        number: int,
        nodes: Sequence[Any],
        *,
        shape: Mapping[str, Any],
    ) -> RankStep | None:
        """Start it on all nodes, with the variables that the script has set; None if the script has
        already ended."""
        with connection.makefile("rb") as file:
            line = file.readline()
        if not line:
            return None
        command, plain = json.loads(line), plain_environment()
        exported = {
            name: value
            for name, value in command["variables"].items()
            if plain.get(name) != value and name not in OWN_VARIABLES | _FOR_SCRIPT
        }
        starts = [
            node.start_ranks.remote(
                number, command["words"], variables=exported, node=place, **shape
            )
            for place, node in enumerate(nodes)
        ]
        ray.get(starts)
        step = cls(connection=connection, number=number, nodes=nodes)
        step.reading = {node.output_of_ranks.remote(number): node for node in nodes}
        return step

    def goes_on(self) -> bool:
        """Forward the ranks' output; return whether any rank still runs."""
        if _is_closed(self.connection):
            self.end()
        done, _ = ray.wait(list(self.reading), num_returns=1, timeout=LOOK_S)
        for reference in done:
            node = self.reading.pop(reference)
            printed, code = ray.get(reference)
            self._send(OUTPUT, len(printed), printed)
            if code is None:
                self.reading[node.output_of_ranks.remote(self.number)] = node
            elif code:
                self.code = self.code or code
                self.end()
        if self.reading:
            return True
        self._send(CODE, self.code)
        self.connection.close()
        return False

    def end(self) -> None:
        """End all ranks, once."""
        if not self.ending:
            self.ending = True
            for node in self.nodes:
                node.end_ranks.remote(self.number)

    def _send(self, kind: bytes, number: int, content: bytes = b"") -> None:
        with contextlib.suppress(OSError):  # it has been killed
            self.connection.sendall(struct.pack(FRAME, kind, number) + content)


@contextlib.contextmanager
def listener_in(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """Yield a socket in this folder and its path, which may be longer than a socket's address."""
    path = folder / f"ranks-{secrets.token_hex(4)}"
    there = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{there}/{path.name}")
        listener.listen()
        try:
            yield listener, path
        finally:
            path.unlink(missing_ok=True)
            os.close(there)


def accepted(listener: socket.socket) -> socket.socket | None:
    readable, _, _ = select.select([listener], [], [], LOOK_S)
    return listener.accept()[0] if readable else None


def _is_closed(connection: socket.socket) -> bool:
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable)


LOG = "trial.log"
SCRIPT = "body.sh"
LONGEST_WAIT_S = 1.0
"""Maximum wait for output in a call."""
KILL_AFTER_S = 15.0
"""How long a trial has after its time limit to end by itself."""
MOST_AT_ONCE = 1 << 20
MOST_OF_A_FILE = 16 << 20
"""Maximum size of a file that is returned, in bytes."""


def own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise PermissionError(f"{folder} is somebody else's")


@dataclass(kw_only=True)
class NodeRanks:
    """The ranks of one step on one node."""

    group: ProcessGroup
    processes: list[subprocess.Popen[bytes]]
    output: Path
    sent: int = 0

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

    def where(self) -> dict[str, str]:
        """Return its node's id, host and address."""
        return {
            "id": ray.get_runtime_context().get_node_id(),
            "host": socket.gethostname(),
            "address": ray.util.get_node_ip_address(),
        }

    def prepare(self, folder: str, files: Mapping[str, bytes]) -> None:
        """Write the attempt's files. Other nodes of the trial may share the folder."""
        place = Path(folder)
        own_folder(place.parents[1])
        place.mkdir(parents=True, exist_ok=True)
        for name, content in {**files, AS_RANKS: AS_RANKS_SCRIPT.encode()}.items():
            path = place / name
            if not path.exists():
                partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
                partial.write_bytes(content)
                partial.replace(path)

    def clear(self, folder: str) -> None:
        """Remove the attempt's folder, after all its processes have ended."""
        for number in list(self._ranks):
            self.end_ranks(number)
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
            printed = _part_of(step.output, step.sent)
            if printed or code is not None or time.monotonic() > until:
                step.sent += len(printed)
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
        """Return the script's log from `offset` on; while it runs, wait a moment for output."""
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
