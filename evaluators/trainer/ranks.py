"""The processes of all ranks of a trial on this machine, and their messages.

`python -m evaluators.trainer.ranks TASK` is one rank; TASK is JSON: parent, settings, request.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaluators import processes
from evaluators.trainer.failure import RankFailure, ended_by
from evaluators.trainer.libraries import Device, load
from evaluators.trial import LOG, TrialRequest, log_tail, request_as_dict, request_from_dict

LOOPBACK = "127.0.0.1"


@dataclass
class RankProcess:
    """One rank's process, and the file descriptor of its messages."""

    number: int
    pid: int
    reports: int
    unread: bytes = b""


@dataclass
class RankProcesses:
    """The processes of one trial.

    On a CPU they are forked from this process, which has imported torch and DeepSpeed. With GPUs
    they are fresh processes, since a GPU context does not survive a fork.
    """

    request: TrialRequest
    device: Device
    running: list[RankProcess] = field(default_factory=list)
    failures: list[RankFailure] = field(default_factory=list)
    report: Mapping[str, Any] | None = None
    progress: str = "starting up"
    _fresh: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Start every rank."""
        world_size = self.request.strategy.world_size(self.request.machine.gpus_per_node)
        start = self._spawned if self.device == "cuda" else self._forked
        with socket.create_server((LOOPBACK, 0)) as listening:
            for number in range(world_size):
                receive, send = os.pipe()
                os.set_blocking(receive, False)
                settings = {
                    "rank": number,
                    "world_size": world_size,
                    "local_rank": number,
                    "device": self.device,
                    "address": [LOOPBACK, listening.getsockname()[1]],
                    "listening": listening.fileno() if number == 0 else None,
                    "reports": send,
                }
                self.running.append(RankProcess(number, start(settings), receive))
                os.close(send)

    def _forked(self, settings: Mapping[str, Any]) -> int:

        def work() -> int:
            os.setpgid(0, 0)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for rank in self.running:
                os.close(rank.reports)
            with (self.request.directory / LOG).open("ab") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            return be_rank(self.request, settings)

        return processes.fork(work)

    def _spawned(self, settings: Mapping[str, Any]) -> int:
        task = {
            "parent": os.getpid(),
            "settings": settings,
            "request": request_as_dict(self.request),
        }
        inherited = [fd for fd in (settings["reports"], settings["listening"]) if fd is not None]
        with (self.request.directory / LOG).open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "evaluators.trainer.ranks", json.dumps(task)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=inherited,
                process_group=0,
            )
        # Stored, since subprocess would reap a forgotten one.
        self._fresh.append(process)
        return process.pid

    def watch(self) -> None:
        """Process the messages and ends of ranks."""
        for rank in list(self.running):
            # The end first, then the messages, so that none is missed.
            exit_code = processes.exit_code_of(rank.pid)
            self._read(rank)
            if exit_code is None:
                continue
            os.close(rank.reports)
            self.running.remove(rank)
            reported = any(failure.rank == rank.number for failure in self.failures)
            if exit_code and not reported:
                words = log_tail(self.request.directory)
                self.failures.append(
                    ended_by(rank.number, exit_code, last_words=words, at=time.monotonic())
                )

    def _read(self, rank: RankProcess) -> None:
        with contextlib.suppress(BlockingIOError):
            while received := os.read(rank.reports, 65536):
                rank.unread += received
        *lines, rank.unread = rank.unread.split(b"\n")
        for message in map(json.loads, lines):
            if message["kind"] == "failure":
                self.failures.append(
                    RankFailure(rank=message["rank"], error=message["error"], at=message["at"])
                )
            elif message["kind"] == "progress":
                self.progress = message["text"]
            else:
                self.report = message

    def end(self) -> None:
        """Kill all running ranks and wait for their ends."""
        for rank in self.running:
            processes.kill(rank.pid)
            os.close(rank.reports)
        self.running.clear()


def be_rank(request: TrialRequest, settings: Mapping[str, Any]) -> int:
    """Be the rank that `settings` describes (see `rank.RankSettings`); return its exit code."""
    load()
    from evaluators.trainer.rank import RankSettings, leave, run_rank

    address = (settings["address"][0], settings["address"][1])
    code, _ = run_rank(request, RankSettings(**{**settings, "address": address}))
    leave(code)
    return code


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    processes.die_with(task["parent"])
    be_rank(request_from_dict(task["request"]), task["settings"])
