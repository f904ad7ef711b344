"""A step of a trial: its script runs a command as every rank, on all nodes.

It is sent to the cluster by value, like `evaluators.ray.node`.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray

from evaluators.ray.node_environment import OWN_VARIABLES, plain_environment

AS_RANKS = "as_ranks.sh"
"""`bash as_ranks.sh WORDS…` in the script runs the words as every rank; as srun does, it prints
what they print, ends all with the first that fails, and ends with its exit code."""
SOCKET, INTERPRETER = "AUTOTUNE_RANKS", "AUTOTUNE_PYTHON"

FRAME = "!ci"
OUTPUT, CODE = b"o", b"c"
_HANDED_ON = frozenset({SOCKET, INTERPRETER})
LOOK_S = 0.02

# Asked to end, it asks the ranks to and waits for that, or the next run would meet them.
AS_RANKS_SCRIPT = f"""\
exec "${INTERPRETER}" - "$@" <<'END'
import json, os, signal, socket, struct, sys
ranks = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(os.environ["{SOCKET}"]))  # a socket's address is short
ranks.connect(os.path.basename(os.environ["{SOCKET}"]))
signal.signal(signal.SIGTERM, lambda *_: ranks.shutdown(socket.SHUT_WR))
asked = {{"words": sys.argv[1:], "variables": dict(os.environ)}}
ranks.sendall(json.dumps(asked).encode() + b"\\n")
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
        asked, plain = json.loads(line), plain_environment()
        exported = {
            name: value
            for name, value in asked["variables"].items()
            if plain.get(name) != value and name not in OWN_VARIABLES | _HANDED_ON
        }
        starts = [
            node.start_ranks.remote(number, asked["words"], variables=exported, node=place, **shape)
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
    """Return whether the other end has closed; it never sends a second message."""
    readable, _, _ = select.select([connection], [], [], 0)
    return bool(readable)
