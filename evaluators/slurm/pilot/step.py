"""An attempt's script as a process of this host, with its steps on nodes of the allocation.

The process has its own session and outlives the one that started it. It is found again by its
command line, which names the attempt's folder. `StepCleanup` ends steps that outlive their trial.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from pydantic import TypeAdapter

from evaluators.attempt import ENDED, Attempt
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.slurm.attempt_files import write_intent
from evaluators.slurm.batch_script import (
    BODY_SCRIPT,
    JOB_SCRIPT,
    body_script,
    launcher_of,
    run_script,
)
from evaluators.slurm.commands import Slurm, SlurmError
from evaluators.time_limit import KILL_AFTER_S

PLACE = "place.json"
BASH = "/bin/bash"
KILL_GRACE_S = 5.0
"""Between asking a trial's processes to end and killing them."""
LATE_S = 30.0
"""A trial that another host runs has ended for certain so long after its time limit, counted from
when it was first seen."""


@dataclass(frozen=True, kw_only=True)
class StepPlace:
    """Where an attempt runs: nodes, job, and the host of its script."""

    job_id: str
    nodes: tuple[str, ...]
    host: str


_PLACE = TypeAdapter(StepPlace)


def prepare(attempt: Attempt, place: StepPlace, profile: ClusterProfile, program: Program) -> None:
    """Write the files of the attempt, its intent last.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
        OSError: its folder cannot be written.
    """
    folder = attempt.folder
    folder.mkdir(parents=True, exist_ok=True)
    attempt.ended_folder.mkdir(exist_ok=True)
    options = [
        f"--jobid={place.job_id}",
        f"--job-name={attempt.name}",
        f"--nodelist={','.join(place.nodes)}",
        "--overlap",  # or a step waits until Slurm has tidied up the one before it
    ]
    launcher = launcher_of(profile, attempt.request, options=options)
    texts = {
        **program.files(attempt.request, folder),
        BODY_SCRIPT: body_script(attempt, profile, program, launcher),
        JOB_SCRIPT: run_script(attempt),
        PLACE: json.dumps(asdict(place)),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    write_intent(folder, name=attempt.name, at=time.time())


def read_step_place(folder: Path) -> StepPlace | None:
    """Return where the attempt of this folder runs; None if that was not recorded."""
    try:
        return _PLACE.validate_json((folder / PLACE).read_bytes())
    except (OSError, ValueError):
        return None


class StepProcess:
    """The processes of one attempt.

    Args:
        process: on this host; None: another host runs it, and only its files report on it.
        child: whether this process is its parent and is notified of its end.
    """

    def __init__(
        self, attempt: Attempt, process: psutil.Process | None, *, child: bool = False
    ) -> None:
        self._attempt = attempt
        self._process = process
        self._child = child
        limit_s = attempt.request.protocol.time_limit_s
        # By our monotonic clock, since its host's clock may be ahead or behind.
        self._ended_by = time.monotonic() + limit_s + KILL_AFTER_S + LATE_S
        self._signalled: list[psutil.Process] = []
        self._kill_at = float("inf")

    def alive(self) -> bool:
        """Return whether its processes run; after the first False it must not be called again."""
        if self._process is None:
            return time.monotonic() < self._ended_by and not (self._attempt.folder / ENDED).exists()
        if not self._child:
            return runs(self._process)
        try:
            return os.waitpid(self._process.pid, os.WNOHANG)[0] == 0
        except ChildProcessError:
            return False

    def end(self) -> None:
        """Terminate its processes, and kill them a little later; call until they have ended."""
        if not self._signalled:
            self._signalled = self._tree()
            self._kill_at = time.monotonic() + KILL_GRACE_S
            _signal(self._signalled, signal.SIGTERM)
        elif time.monotonic() > self._kill_at:
            _signal([*self._signalled, *self._tree()], signal.SIGKILL)

    def _tree(self) -> list[psutil.Process]:
        if self._process is None:
            return []
        try:
            return [*self._process.children(recursive=True), self._process]
        except psutil.Error:
            return []


def start(attempt: Attempt, place: StepPlace, *, environment: Mapping[str, str]) -> StepProcess:
    """Run what `prepare` wrote; raises OSError."""
    nodes, count = ",".join(place.nodes), str(len(place.nodes))
    # The environment of a job on these nodes.
    job = {
        "AUTOTUNE_JOB": place.job_id,
        "AUTOTUNE_NODES": nodes,
        "SLURM_JOB_ID": place.job_id,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": count,
        "SLURM_NNODES": count,
    }
    null = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            BASH,
            _command(attempt.folder),
            {**environment, **job},
            file_actions=[(os.POSIX_SPAWN_DUP2, null, number) for number in (0, 1, 2)],
            setsid=True,
            setsigdef=[signal.SIGPIPE],  # which Python ignores
        )
    finally:
        os.close(null)
    return StepProcess(attempt, psutil.Process(pid), child=True)


def survivors() -> dict[Path, psutil.Process]:
    """Return the attempts that run on this host by folder, whoever started them."""
    running: dict[Path, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            folder = Path(command[-1]).parent if command else Path()
            if command == _command(folder) and (folder / PLACE).exists() and runs(process):
                running[folder] = process
    return running


def this_host() -> str:
    return socket.gethostname()


def absolute(folder: Path) -> Path:
    """Return an attempt's folder as its process's command line names it."""
    return Path(os.path.abspath(folder))


def _command(folder: Path) -> list[str]:
    return [BASH, str(absolute(folder) / JOB_SCRIPT)]


def runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


class OrphanedSteps:
    """Trials that an earlier process left running on this host, until they are adopted.

    They are found once, at first use; their nodes are not free while they run.

    Args:
        trials: the folder of all trials; others belong to another service.
    """

    def __init__(self, trials: Path) -> None:
        self._trials = absolute(trials)
        self._steps: dict[Path, tuple[psutil.Process, StepPlace]] = {}
        self._looked = False

    def look(self) -> None:
        """Find the trials, at the first call."""
        if self._looked:
            return
        self._looked = True
        for folder, process in survivors().items():
            place = read_step_place(folder)
            if place and self._trials in folder.parents:
                self._steps[folder] = (process, place)

    def adopt(self, attempt: Attempt) -> psutil.Process | None:
        """Return the process of this attempt, which has an owner again."""
        process, _ = self._steps.pop(absolute(attempt.folder), (None, None))
        return process

    def places(self, job_id: str) -> list[StepPlace]:
        """Return the places in this allocation of those that still run."""
        self._steps = {
            folder: (process, place)
            for folder, (process, place) in self._steps.items()
            if runs(process)
        }
        return [place for _, place in self._steps.values() if place.job_id == job_id]


PAUSE_S = 1.0
"""Between two listings of steps, so that they and the status calls stay below two a second."""
log = logging.getLogger(__name__)


class StepCleanup:
    """Ends steps by name, in its own thread. Thread-safe."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._wake = threading.Condition()
        self._dead: dict[str, str] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def end_steps(self, name: str, *, job_id: str) -> None:
        """End every step of this name in the job, from now on."""
        with self._wake:
            self._dead[name] = job_id
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="slurm-steps", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def gone(self, name: str) -> bool:
        """Return whether Slurm has reported, after `end_steps`, that there is none."""
        with self._wake:
            return name not in self._dead

    def close(self) -> None:
        """End the thread, after the current command."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if self._thread:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._dead or self._closed)
                if self._closed:
                    return
                dead = dict(self._dead)
            began = time.monotonic()
            try:
                self._end_left_over(dead)
            except SlurmError as error:
                log.warning("steps cannot be listed: %s", error)
            with self._wake:
                pause_s = max(PAUSE_S, time.monotonic() - began)
                self._wake.wait_for(lambda: self._closed, timeout=pause_s)

    def _end_left_over(self, dead: dict[str, str]) -> None:
        """Cancel the steps that still run, by name and job; an unlisted one is gone."""
        left: set[str] = set()
        for job_id in set(dead.values()):
            steps = self._slurm.steps(job_id)
            left_over = [step for step, name in steps if dead.get(name) == job_id]
            left |= {name for _, name in steps}
            if left_over:
                self._slurm.scancel(left_over)
        with self._wake:
            for name in dead.keys() - left:
                self._dead.pop(name, None)
