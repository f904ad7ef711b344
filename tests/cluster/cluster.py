"""A Slurm cluster: its daemons on this machine, its files in one temporary folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from tests.cluster import accounting
from tests.cluster.configuration import Shape, host_address, make_devices, write
from tests.cluster.daemons import (
    NODE_MARK,
    PATH,
    Daemons,
    clean_environment,
    foreign_variables,
    kill,
)
from tests.cluster.ports import free_ports

__all__ = ["Cluster", "foreign_variables", "lacking", "packages"]

DAEMONS = ("munged", "slurmctld", "slurmd")
ACCOUNTING_DAEMONS = ("slurmdbd", "mariadbd")
START_LIMIT_S = 120.0
COMMAND_LIMIT_S = 60.0
CONNECT_LIMIT_S = 1.0
LOOK_S = 0.03

MISSED = "down*"
"""A node whose slurmd did not answer in time."""


def lacking(*, accounting: bool = False) -> list[str]:
    """Daemons that this machine lacks; Debian keeps them off a user's path."""
    wanted = DAEMONS + (ACCOUNTING_DAEMONS if accounting else ())
    return [name for name in wanted if shutil.which(name, path=PATH) is None]


def packages(*, accounting: bool = False) -> str:
    """Debian's packages with them."""
    own = "slurmctld slurmd slurm-client munge"
    return f"{own} slurmdbd mariadb-server" if accounting else own


class Cluster:
    """Nodes `n01`, `n02` ... Without root there are no GPUs (`gpus` is 0).

    Attributes:
        environment: what a client needs besides its own environment.
    """

    def __init__(self, **shape: Any) -> None:
        """`shape`: see `Shape`."""
        wanted = Shape(**shape)
        self.shape = wanted if os.geteuid() == 0 else Shape(**{**shape, "gpus": 0})
        self.nodes = self.shape.names
        self.gpus = self.shape.gpus
        self.folder = Path()
        self.environment: Mapping[str, str] = {}
        self._running: Daemons | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Every node is idle when it returns.

        Raises:
            TimeoutError: with the daemons' last words.
        """
        self.folder = Path(tempfile.mkdtemp(prefix="autotune-slurm-"))
        self.environment = {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        self._running = Daemons(self.folder, self.environment)
        try:
            self._write_files()
            self._start_daemons()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Every daemon, every process of every job, and the folder are gone when it returns."""
        if self._running is not None:
            self._running.close()
        self._running = None

    def command(self, *words: str, check: bool = True) -> str:
        """What a client command of Slurm printed.

        Raises:
            RuntimeError: it failed; without `check` that is no matter.
        """
        done = subprocess.run(
            words,
            env={**clean_environment(), **self.environment, "PATH": PATH},
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    def kill_controller(self) -> None:
        """As if its host had lost power: what it had not yet written is forgotten."""
        self._daemons.end("slurmctld", signal.SIGKILL)

    def stop_controller(self) -> None:
        self._daemons.end("slurmctld", signal.SIGTERM)

    def start_controller(self) -> None:
        """It answers when this returns, and has heard of its nodes.

        By itself it looks for them after some seconds; on SIGHUP they come to it.
        """
        if not self.is_up("slurmctld"):
            self._start_slurmctld()
            self._wait(self._answers)
            for node in self.nodes:
                if pid := self._daemons.pid(node):
                    os.kill(pid, signal.SIGHUP)

    def wait_saved(self, *, since: float) -> None:
        """Until the controller has saved its jobs after that (epoch); it then waits for 5 s.

        Raises:
            TimeoutError: it did not.
        """
        saved = self.folder / "state" / "job_state"
        self._wait(lambda: saved.exists() and saved.stat().st_mtime > since)

    @contextlib.contextmanager
    def hanging_controller(self) -> Iterator[None]:
        """It is stopped meanwhile, and so accepts a call and never answers it."""
        pid = self._daemons.pid("slurmctld")
        assert pid is not None, "there is no controller"
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def is_up(self, daemon: str) -> bool:
        """`slurmctld`, or the slurmd of a node by the node's name."""
        return self._daemons.is_up(daemon)

    def down(self, node: str, reason: str = "test") -> None:
        """Its jobs fail with NODE_FAIL at once."""
        self.command("scontrol", "update", f"nodename={node}", "state=down", f"reason={reason}")

    def drain(self, node: str, reason: str = "test") -> None:
        """Its jobs go on; it takes no other."""
        self.command("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        self.command("scontrol", "update", f"nodename={node}", "state=resume")

    def kill_node(self, node: str, *, tasks: bool = False) -> None:
        """Its slurmd is killed. Its tasks live on, unless `tasks`: as if it had lost power."""
        self._daemons.end(node, signal.SIGKILL)
        if tasks:
            self._kill_tasks(node)

    def start_node(self, node: str) -> None:
        if not self.is_up(node):
            command = ["slurmd", "-D", "-f", f"{self.folder}/slurm.conf", "-N", node]
            self._daemons.start(node, command, **{NODE_MARK: node})

    def processes(self, node: str) -> list[int]:
        """What Slurm started on that node and still runs, Slurm's own step daemons first."""
        return self._daemons.processes(node)

    def jobs(self) -> dict[str, str]:
        """State of each job that is not yet over, by its id."""
        lines = self.command("squeue", "--noheader", "--all", "--format=%i %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def states(self) -> dict[str, str]:
        """State of each node, as sinfo says it: `idle`, `allocated`, `down*` ..."""
        lines = self.command("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(line.split(maxsplit=1) for line in lines)

    def wait_idle(self, limit_s: float = START_LIMIT_S) -> None:
        """Until the queue is empty and every node idle. One that only was too slow to answer on a
        busy machine is taken back.

        Raises:
            TimeoutError: with the states there were.
        """
        self._wait(self._is_idle_when_answering, limit_s)

    def reset(self) -> None:
        """Every daemon runs, nothing is in the queue or on a node, every node is idle."""
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self._wait(self._is_idle_when_cleared)
        for node in self.nodes:
            self._kill_tasks(node)

    @property
    def _daemons(self) -> Daemons:
        assert self._running, "this cluster is not up"
        return self._running

    def _kill_tasks(self, node: str) -> None:
        """A step daemon that has just started may start one more."""
        while processes := self.processes(node):
            kill(processes)
            time.sleep(LOOK_S)

    def _is_idle_when_cleared(self) -> bool:
        """Cleared again each time: a dying service may submit one more job."""
        if jobs := self.jobs():
            self.command("scancel", "--full", "--signal=KILL", *jobs, check=False)
            self.command("scancel", *jobs, check=False)
        for node, state in self.states().items():
            if state.startswith(("down", "drain", "fail")):
                self.command("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return self._is_idle()

    def _is_idle_when_answering(self) -> bool:
        for node, state in self.states().items():
            if state == MISSED and self.is_up(node):
                self.command("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return self._is_idle()

    def _is_idle(self) -> bool:
        """Of its own nodes: a configuration may name others."""
        return (
            not self.jobs() and self.states().items() >= dict.fromkeys(self.nodes, "idle").items()
        )

    def _write_files(self) -> None:
        for name in ("state", "log", *(f"spool/{node}" for node in self.nodes)):
            (self.folder / name).mkdir(parents=True)
        self._port, accounts, *nodes = free_ports(2 + len(self.nodes))
        accounted = accounting.write(self.folder, accounts) if self.shape.accounting else {}
        write(self.folder, self.shape, controller=self._port, nodes=nodes, accounting=accounted)
        if self.gpus:
            make_devices(self.folder, self.gpus)

    def _start_daemons(self) -> None:
        self._start_munge()
        if self.shape.accounting:
            self._start_accounting()
        self._start_slurmctld()
        for node in self.nodes:
            self.start_node(node)
        self._wait(lambda: self._answers() and self._is_idle())

    def _answers(self) -> bool:
        """A client that finds nobody there tries again for seconds: it is called afterwards."""
        try:
            socket.create_connection((host_address(), self._port), timeout=CONNECT_LIMIT_S).close()
        except OSError:
            return False
        return "is UP" in self.command("scontrol", "ping", check=False)

    def _start_munge(self) -> None:
        key, socket = self.folder / "munge.key", self.folder / "munge.socket"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        files = {"key-file": key, "socket": socket, "pid-file": self.folder / "munge.pid"}
        files |= {
            "log-file": self.folder / "log/munge.log",
            "seed-file": self.folder / "munge.seed",
        }
        options = [f"--{name}={path}" for name, path in files.items()]
        self._daemons.start("munged", ["munged", "--foreground", "--force", *options])
        self._wait(socket.exists)

    def _start_accounting(self) -> None:
        socket = self.folder / "database.socket"
        self._daemons.start("mariadbd", accounting.database(self.folder))
        self._wait(socket.exists)
        self._daemons.start("slurmdbd", ["slurmdbd", "-D"], MYSQL_UNIX_PORT=str(socket))
        self._wait(lambda: bool(self.command("sacctmgr", "-n", "show", "tres", check=False)))

    def _start_slurmctld(self) -> None:
        self._daemons.start("slurmctld", ["slurmctld", "-D", "-f", f"{self.folder}/slurm.conf"])

    def _wait(self, done: Callable[[], bool], limit_s: float = START_LIMIT_S) -> None:
        ends = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > ends:
                raise TimeoutError(self._last_words())
            time.sleep(LOOK_S)

    def _last_words(self) -> str:
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
            return f"nodes {self.states()}, jobs {self.jobs()}"
        logs = sorted((self.folder / "log").glob("*"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-500:]}" for log in logs)
