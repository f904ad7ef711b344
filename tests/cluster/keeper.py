"""Keeps the daemons of one cluster, and takes everything away when its owner is gone.

Run as a script. It reads one order a line (JSON) and answers each with one line. It is the
*subreaper* of all it starts: whatever a job leaves behind, however often it has forked, becomes its
child, and is ended with it. An owner that ends in whatever way closes the pipe of orders.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SET_DEATH_SIGNAL, SET_SUBREAPER = 1, 36  # of prctl(2)
END_LIMIT_S = 30.0
LOOK_S = 0.5


class Keeper:
    """The daemons by their names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._prctl = ctypes.CDLL(None).prctl
        self._prctl(SET_SUBREAPER, 1, 0, 0, 0)

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        orders: dict[str, Callable[..., dict[str, Any]]]
        orders = {"start": self.start, "end": self.end, "pid": self.pid}
        return orders[order.pop("do")](**order)

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> dict[str, Any]:
        """Its log is `<folder>/log/<name>.out`."""
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            self._daemons[name] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
                preexec_fn=lambda: self._prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0),
            )
        return self.pid(name)

    def end(self, name: str, number: int) -> dict[str, Any]:
        """Send the signal and wait for its end; it is killed when it takes too long."""
        daemon = self._daemons.get(name)
        if daemon is not None and daemon.poll() is None:
            daemon.send_signal(number)
            try:
                daemon.wait(END_LIMIT_S)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        return self.pid(name)

    def pid(self, name: str) -> dict[str, Any]:
        """None while it does not run."""
        daemon = self._daemons.get(name)
        return {"pid": daemon.pid if daemon and daemon.poll() is None else None}

    def reap(self) -> None:
        """Whatever has ended: daemons, and the orphans of jobs."""
        peek = os.WEXITED | os.WNOHANG | os.WNOWAIT
        daemons = {daemon.pid: daemon for daemon in self._daemons.values()}
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, peek):
                if ended.si_pid in daemons:
                    daemons[ended.si_pid].wait()
                else:
                    os.waitpid(ended.si_pid, 0)

    def take_down(self) -> None:
        """All at once and without a farewell: nothing of what they would save is kept."""
        end_descendants()
        shutil.rmtree(self.folder, ignore_errors=True)


def end_descendants() -> None:
    """The orphans of those that are killed become children of this process: until none is left."""
    while True:
        for pid in descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Process ids below `root`, parents first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    tree = [root]
    for pid in tree:
        tree.extend(children.get(pid, []))
    return tree[1:]


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):  # meant for the owner, who then says what to do
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    keeper, owner = Keeper(Path(sys.argv[1])), os.getppid()
    orders = os.fdopen(0, "rb", buffering=0)
    try:
        while os.getppid() == owner:
            if not select.select([orders], [], [], LOOK_S)[0]:
                keeper.reap()
                continue
            line = orders.readline()
            if not line:
                break
            print(json.dumps(keeper.answer(json.loads(line))), flush=True)
    finally:
        keeper.take_down()


if __name__ == "__main__":
    main()
