"""Processes of a service that are killed, stopped and started again, on a clock of their own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil

from evaluators.processes import die_with
from server.settings import Settings

MARK = "AUTOTUNE_ENDURANCE"
START_LIMIT_S = 120.0
END_LIMIT_S = 60.0
ENDED_WELL = {0, -signal.SIGTERM}
"""The latter where it was asked before it had begun."""
SOURCE = Path(__file__).with_name("stepped_clock.c")


class SteppedClock:
    """The clock on the wall as the service's processes see it; what they measure by clocks that
    only go forwards stays true.

    Attributes:
        there: whether this machine has a C compiler, which makes the library that does it.
    """

    def __init__(self, folder: Path) -> None:
        self._offset = folder / "clock"
        self._library = folder / "stepped_clock.so"
        self.step(0)
        self.there = shutil.which("cc") is not None
        if self.there:
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE)]
            subprocess.run(command, check=True)

    def step(self, offset_s: int) -> None:
        """Set it so far ahead of the true time."""
        # In place: every process has mapped this very file.
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(struct.pack("=q", offset_s))

    @property
    def environment(self) -> Mapping[str, str]:
        if not self.there:
            return {}
        return {"LD_PRELOAD": str(self._library), "AUTOTUNE_CLOCK": str(self._offset)}


@dataclass(kw_only=True)
class Program:
    """One process with its children, started again as often as it is killed; `log` has its words.
    It ends with the process that started it, from its main thread.

    Attributes:
        mark: is in the environment of the process and of all that it starts.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    mark: str
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *self.words],
                env={**self.environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=partial(die_with, os.getpid()),
            )

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def beneath(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.Error:
            return []

    def kill(self) -> list[str]:
        """Return the commands of those below it that live on."""
        assert self.process
        below = self.beneath()
        self.process.kill()
        self.process.wait()
        return outliving(below)

    def stop(self) -> int | None:
        """Ask it to end; return its exit code, None where it did not and was killed."""
        assert self.process
        self.process.terminate()
        try:
            return self.process.wait(END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def hang(self, seconds: float) -> None:
        """Stop it meanwhile, as a machine without memory does."""
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.pid, signal.SIGCONT)


def outliving(processes: Sequence[psutil.Process]) -> list[str]:
    """Return the commands of those that have not ended after a while. A client of Slurm may: it
    ends by itself once it was answered."""
    _, alive = psutil.wait_procs(processes, END_LIMIT_S)
    found = []
    for process in alive:
        try:
            found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


def marked(mark: str) -> list[psutil.Process]:
    """Return all living processes that carry the mark."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@dataclass(frozen=True, kw_only=True)
class ServiceRecord:
    """Where the service listens, and its token."""

    url: str
    token: str

    @classmethod
    def wait_for(cls, program: Program, settings: Settings) -> ServiceRecord | None:
        """Return the record of this very process, None where it ended instead."""
        ends = time.monotonic() + START_LIMIT_S
        while program.lives and time.monotonic() < ends:
            try:
                record = json.loads((settings.data_dir / "service.json").read_text())
                if record["pid"] == program.pid:
                    return cls(url=record["url"], token=record["token"])
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.05)
        return None
