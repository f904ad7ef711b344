"""Processes of a service that are killed, stopped and started again, on a clock of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

from evaluators.processes import die_with
from server.settings import Settings

MARK = "AUTOTUNE_ENDURANCE"
"""In the environment of all that programs start."""
IMPORTED = (
    "server.runner.runner",
    "server.service",
    "server.cli.application",
    "server.cli.commands.serve",
    "deephyper.hpo",
    "tests.server.faults.programs",
)
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
        # In place: every process has mapped this very file.
        with self._offset.open("r+b" if self._offset.exists() else "wb") as file:
            file.write(struct.pack("=q", offset_s))

    @property
    def environment(self) -> Mapping[str, str]:
        if not self.there:
            return {}
        return {"LD_PRELOAD": str(self._library), "AUTOTUNE_CLOCK": str(self._offset)}


class Nursery:
    """A process that has imported all that programs need, and forks them: each starts in a tenth
    of a second, and not in three of a core. There is one at a time for each process of tests.

    Args:
        environment: of the programs.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(IMPORTED))
        resource_tracker.ensure_running()  # with an environment of its own
        before = dict(os.environ)
        os.environ.clear()
        os.environ.update(environment)
        try:
            forkserver.ensure_running()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def close(self) -> None:
        getattr(forkserver, "_forkserver")._stop()  # noqa: B009

    def start(self, words: Sequence[str], log: Path) -> ForkServerProcess:
        process = self._context.Process(target=_run, args=(list(words), str(log)))
        process.start()
        return process


def _run(words: Sequence[str], log: str) -> None:
    os.setsid()
    die_with(os.getppid())
    # With this descriptor it would keep the nursery alive when the process of tests has ended.
    os.close(getattr(forkserver, "_forkserver")._forkserver_alive_fd)  # noqa: B009
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv = list(words)
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


@dataclass(kw_only=True)
class Program:
    """One process with its children, started again as often as it is killed; `log` has its
    words."""

    words: Sequence[str]
    log: Path
    nursery: Nursery
    process: ForkServerProcess | None = field(default=None)

    def start(self) -> None:
        self.process = self.nursery.start(self.words, self.log)

    @property
    def pid(self) -> int:
        assert self.process
        assert self.process.pid
        return self.process.pid

    @property
    def lives(self) -> bool:
        return self.process is not None and self.process.is_alive()

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
        self.process.join()
        return outliving(below)

    def stop(self) -> int | None:
        """Ask it to end; return its exit code, None where it did not and was killed."""
        assert self.process
        self.process.terminate()
        self.process.join(END_LIMIT_S)
        if self.lives:
            self.kill()
            return None
        return self.process.exitcode

    def hang(self, seconds: float) -> None:
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
    """Return all living processes that carry the mark, which began in a nursery's program."""
    found = []
    for process in psutil.process_iter():
        try:
            carries = process.environ().get(MARK) == mark
            nursery = process.ppid() == os.getpid()
            if carries and not nursery and process.status() != psutil.STATUS_ZOMBIE:
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
