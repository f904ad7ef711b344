"""One rank of a trainer, on a node: `python rank_process.py start-1.json`.

Standard library and Python 3.8 only, as it runs with the node's own Python. Each line that the rank
prints is forwarded with its arrival time and rank, `[start 1 rank 3 12.345678s] …`, so one log has
all ranks on every kind of cluster.
"""

from __future__ import annotations

import glob
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

LOOK_S = 0.2
ENDING_LOOK_S = 0.02
LONGEST_LINE = 16384
LARGEST_FILE = 16 << 20
COLOURS = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z\\\\^_])")
"""ANSI colour codes, which would break patterns."""
END_LIMIT_S = 3.0
"""Seconds that a trainer has to end by itself after SIGTERM."""


class StampedOutput:
    """The output of a rank, split into lines at newlines and carriage returns, without colours."""

    def __init__(self, start: int, rank: int) -> None:
        self.head = f"[start {start} rank {rank} "
        self.began = time.monotonic()
        self.rest = b""

    def take(self, block: bytes) -> None:
        """Forward the complete lines of a block, and keep the rest."""
        lines = (self.rest + block).replace(b"\r", b"\n").split(b"\n")
        self.rest = lines.pop()
        if len(self.rest) > LONGEST_LINE:
            lines.append(self.rest)
            self.rest = b""
        self.tell(lines)

    def tell(self, lines: Sequence[bytes]) -> None:
        """Write lines in one call, so that they do not mix with those of other ranks."""
        stamp = f"{self.head}{time.monotonic() - self.began:.6f}s] "
        plain = (COLOURS.sub(b"", line[:LONGEST_LINE]) for line in lines)
        stamped = [stamp.encode() + line + b"\n" for line in plain if line.strip()]
        if stamped:
            sys.stdout.buffer.write(b"".join(stamped))
            sys.stdout.buffer.flush()


def prepare(plan: Mapping[str, Any]) -> None:
    """Create the start's folder and files; other ranks of the node do the same."""
    os.makedirs(plan["out"], exist_ok=True)
    for name, text in plan["files"].items():
        path = os.path.join(plan["out"], name)
        partial = f"{path}.{os.getpid()}.partial"
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(partial, path)


class TrainerProcess:
    """The trainer of a rank, with all its descendants: on SIGTERM a shell script ends
    without its children, which would go on training during the next start."""

    def __init__(self, child: subprocess.Popen[bytes]) -> None:
        self.child = child
        self._ending_since_s: float | None = None
        self._started: list[StartedProcess] = []

    @property
    def is_ending(self) -> bool:
        return self._ending_since_s is not None

    def ask_to_end(self, _number: int, _frame: FrameType | None) -> None:
        """Ask all processes to end, as a signal handler."""
        if not self.is_ending:
            self._ending_since_s = time.monotonic()
            self._started = descendants(self.child.pid)
            self._signal(signal.SIGTERM)

    def has_ended(self) -> bool:
        """Return whether it has ended; kill what has not ended in time."""
        ended = self.child.poll() is not None
        if self._ending_since_s is None:
            return ended
        if time.monotonic() > self._ending_since_s + END_LIMIT_S:
            # What it has started since SIGTERM would outlive it.
            self._started += descendants(self.child.pid)
            self._signal(signal.SIGKILL)
        return ended and not any(each.runs for each in self._started)

    def _signal(self, number: int) -> None:
        self.child.send_signal(number)
        for each in self._started:
            if each.runs:
                with suppress(OSError):
                    os.kill(each.number, number)


class StartedProcess(NamedTuple):
    """A process, identified by its start time in case its number is reused."""

    number: int
    parent: int
    began: int

    @property
    def runs(self) -> bool:
        now = running(self.number)
        return now is not None and now.began == self.began


def running(number: int) -> StartedProcess | None:
    """Return the process with this number; None if there is none."""
    try:
        with open(f"/proc/{number}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        # proc(5), from the third field on
        state, parent, began = fields[0], int(fields[1]), int(fields[19])
    except (OSError, IndexError):
        return None
    return None if state in b"ZX" else StartedProcess(number, parent, began)


def descendants(number: int) -> list[StartedProcess]:
    """Return all descendants of a process."""
    started: dict[int, list[StartedProcess]] = {}
    for each in map(running, [int(name) for name in os.listdir("/proc") if name.isdigit()]):
        if each:
            started.setdefault(each.parent, []).append(each)
    found = list(started.get(number, []))
    for each in found:
        found += started.get(each.number, [])
    return found


def watch(trainer: TrainerProcess, output: StampedOutput) -> int:
    """Forward the trainer's output until it has ended; its remaining descendants may print on."""
    printed = trainer.child.stdout
    assert printed
    with selectors.DefaultSelector() as selector:
        selector.register(printed, selectors.EVENT_READ)
        while True:
            ended = trainer.has_ended()
            if selector.select(LOOK_S):
                block = os.read(printed.fileno(), 65536)
                if not block:
                    break
                output.take(block)
            elif ended:
                break
    output.take(b"\n")
    while not trainer.has_ended():
        time.sleep(ENDING_LOOK_S)
    return trainer.child.wait()


def collect(out: str, patterns: Iterable[str], *, start: int) -> None:
    """Copy the files to read next to the plan. Each copy is atomic, because this process may be
    killed.

    Args:
        out: the start's folder.
    """
    for place, pattern in enumerate(patterns):
        found = sorted(glob.glob(os.path.join(out, pattern), recursive=True))
        small = [path for path in found if os.path.isfile(path)]
        for number, path in enumerate(small):
            if os.path.getsize(path) <= LARGEST_FILE:
                name = f"found-{start}-{place}-{number}"
                partial = f"partly-{name}.{os.getpid()}"
                shutil.copyfile(path, partial)
                os.replace(partial, name)


def main(path: str) -> int:
    """Run the rank; return the exit code."""
    with open(path, encoding="utf-8") as file:
        plan = json.load(file)
    prepare(plan)
    rank = int(os.environ["RANK"])
    output = StampedOutput(plan["start"], rank)
    environment = {**_surroundings(), "PYTHONUNBUFFERED": "1"}
    # the trainer's own interpreter takes precedence over the profile's
    if os.path.isabs(plan["words"][0]):
        places = [os.path.dirname(plan["words"][0]), environment.get("PATH", os.defpath)]
        environment["PATH"] = os.pathsep.join(places)
    environment.update(plan["variables"])
    folder = plan["folder"] or plan["out"]
    code = 0
    for words in filter(None, (plan["prepare"], plan["words"])):
        if code == 0:
            code = run(words, environment, folder, output)
    if rank == 0:
        collect(plan["out"], plan["collect"], start=plan["start"])
    return code


def run(
    words: Sequence[str], environment: Mapping[str, str], folder: str, output: StampedOutput
) -> int:
    """Run one command of the rank; return its exit code."""
    early: list[int] = []  # signals from before the trainer is known
    signal.signal(signal.SIGTERM, lambda number, _frame: early.append(number))
    try:
        child = subprocess.Popen(
            words,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        output.tell([f"{type(error).__name__}: {words[0]}: {error}".encode()])
        return 127
    trainer = TrainerProcess(child)
    signal.signal(signal.SIGTERM, trainer.ask_to_end)
    if early:
        trainer.ask_to_end(signal.SIGTERM, None)
    code = watch(trainer, output)
    if code and not trainer.is_ending:
        output.tell([ending(code).encode()])
    return 128 - code if code < 0 else code


def _surroundings() -> dict[str, str]:
    """Return the environment. Outside a job, Slurm's variables only gave this rank its number; they
    are removed, since trainers would look for the rest of a job."""
    return {
        name: value
        for name, value in os.environ.items()
        if "SLURM_JOB_ID" in os.environ or not name.startswith("SLURM_")
    }


def ending(code: int) -> str:
    """Return in words how a rank ended."""
    if code > 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name
    hint = " (the host's memory may have been used up)" if name == "SIGKILL" else ""
    return f"ended by {name}{hint}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
