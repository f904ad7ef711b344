"""A trial in pilot mode: a process of this host, with steps on nodes of the allocation.

The process has its own session and outlives the one that started it. It is found again by its
command line, which names the attempt's folder. The tracker ends steps that outlive their trial.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self, assert_never

import psutil
from pydantic import TypeAdapter

from evaluators.attempt import (
    ENDED,
    HOLDING_NODES,
    Attempt,
    AttemptedTrial,
    AttemptState,
    TrialContext,
    attempts_of,
    read_abandoned,
)
from evaluators.cluster.profile import ClusterProfile
from evaluators.failed_nodes import note_failed_nodes
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import read_attempt_files, write_intent
from evaluators.slurm.batch_script import JOB_SCRIPT, run_script, write_scripts
from evaluators.slurm.job_decision import (
    NO_LOSS,
    AbandonAttempt,
    EndAttempt,
    NodeLoss,
    RefusedStep,
    decide_step,
    failed_nodes,
    why_never_launched,
)
from evaluators.slurm.job_records import steady_time
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import Allocation
from evaluators.slurm.pilot.scheduler import WaitingTrial
from evaluators.time_limit import KILL_AFTER_S
from evaluators.trial import TrialProgress, TrialRequest
from evaluators.trial import log_end as end_of_log

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
    steps = [
        f"--jobid={place.job_id}",
        f"--job-name={attempt.name}",
        f"--nodelist={','.join(place.nodes)}",
        "--overlap",  # or a step waits until Slurm has tidied up the one before it
    ]
    files = {PLACE: json.dumps(asdict(place))}
    write_scripts(attempt, profile, program, run_script(attempt), srun=steps, **files)
    write_intent(attempt.folder, name=attempt.name, at=time.time())


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
        process, _ = self._steps.pop(absolute(attempt.folder), (None, None))
        return process

    def places(self, job_id: str) -> list[StepPlace]:
        """Return the places of the running processes whose steps are in this allocation."""
        self._steps = {
            folder: (process, place)
            for folder, (process, place) in self._steps.items()
            if runs(process)
        }
        return [place for _, place in self._steps.values() if place.job_id == job_id]


NO_STEP = "no step"
"""The status of an attempt for which Slurm made no step: it is not the trial's, nor a node's."""
MOST_NO_STEPS = 10
LONGEST_PAUSE_S = 15.0
"""Slurm makes no steps for some seconds after its controller was restarted."""


@dataclass(frozen=True, kw_only=True)
class PilotContext(TrialContext):
    """What every trial of a backend needs."""

    tracker: JobTracker
    allocation: Allocation


@dataclass(kw_only=True, eq=False)
class PilotTrial(AttemptedTrial):
    """A trial in pilot mode. Only the dispatcher's thread changes it, except for `cancelled`.

    Attributes:
        place: of the current or last attempt.
        gone_at: when its processes were found gone (`steady_time`).
        passed_over, passed_since: see `WaitingTrial`; the latter by the monotonic clock.
        no_steps: number of attempts for which Slurm created no step.
        no_step_before: no other step is requested until then (monotonic clock).
    """

    context: PilotContext
    arrived: float = field(default_factory=time.monotonic)
    process: StepProcess | None = None
    place: StepPlace | None = None
    began: float = 0.0
    gone_at: float = 0.0
    passed_over: int = 0
    passed_since: float | None = None
    no_steps: int = 0
    no_step_before: float = float("-inf")

    @classmethod
    def of(cls, request: TrialRequest, context: TrialContext) -> Self:
        trial = super().of(request, context)
        ends = [read_abandoned(attempt.folder) for attempt in attempts_of(request)]
        trial.no_steps = sum(end is not None and end.status == NO_STEP for end in ends)
        return trial

    @property
    def failures(self) -> int:
        return super().failures - self.no_steps

    @property
    def width(self) -> int:
        return self.request.strategy.num_nodes

    @property
    def holds_nodes(self) -> bool:
        return self.state in HOLDING_NODES

    def as_waiting(self, now: float) -> WaitingTrial:
        """Return it as the scheduler sees it."""
        return WaitingTrial(
            name=self.request.token,
            width=self.width,
            group=self.request.group,
            passed_over=self.passed_over,
            waited_s=now - self.passed_since if self.passed_since is not None else 0.0,
        )

    def pass_over(self, nodes: int, now: float) -> None:
        self.passed_over += nodes
        self.passed_since = now if self.passed_since is None else self.passed_since

    def wait(self, reason: str) -> None:
        self.become(AttemptState.PENDING)
        self.answer = TrialProgress(phase="waiting", reason=reason)

    def run(self, process: StepProcess, place: StepPlace) -> None:
        """Record that it runs there."""
        self.become(AttemptState.RUNNING)
        self.process, self.place = process, place
        self.began = time.monotonic()
        self.passed_over, self.passed_since = 0, None
        nodes = ",".join(place.nodes)
        self.answer = TrialProgress(phase="running", job_id=place.job_id, host=nodes)

    def begin_next_attempt(self, reason: str) -> None:
        super().begin_next_attempt(reason)
        self.process, self.place = None, None
        self.wait(reason)

    def processes_gone(self) -> None:
        """Record that its processes are gone. The nodes of a successful trial are free at once.

        Other trials wait until the state of their nodes and leftover steps is known.
        """
        self.become(AttemptState.COMPLETING)
        self.gone_at = steady_time()
        folder = self.attempt.folder
        end = read_attempt_files(folder).end
        log_end = end_of_log(folder)
        # srun may exit with 0 although a node failed, or no task was started.
        blamed = failed_nodes(log_end) or why_never_launched(log_end)
        if end and end.exit_code == 0 and not blamed:
            self._decide(NO_LOSS)
        elif self.place:
            self.context.tracker.end_steps(self.attempt.name, job_id=self.place.job_id)
        else:
            self.context.tracker.cancel(self.attempt.name)  # it was a job of its own

    def advance(self) -> None:
        """Decide, once the state of its nodes is known and no step is left."""
        place, context = self._last_place, self.context
        context.tracker.watch(hurry=True)
        loss = context.allocation.node_loss(place.job_id, place.nodes, since=self.gone_at)
        if loss is not None and context.tracker.steps_gone(self.attempt.name):
            self._decide(loss)
        elif isinstance(self.answer, TrialProgress):
            self.answer = replace(self.answer, reason=context.tracker.trouble)

    def _decide(self, loss: NodeLoss) -> None:
        folder, place = self.attempt.folder, self._last_place
        log_end = end_of_log(folder)
        decision = decide_step(
            read_attempt_files(folder),
            job_id=place.job_id,
            nodes=place.nodes,
            loss=loss,
            log_end=log_end,
            time_limit_s=self.request.protocol.time_limit_s,
            ended_at=self.gone_at,
            cancelled=self.cancelled,
        )
        match decision:
            case EndAttempt(end=end):
                self.close(end)
            case AbandonAttempt(end=end):
                trials, nodes = self.attempt.ended_folder.parent, loss.failed_nodes
                failed = sorted(nodes | failed_nodes(log_end))
                note_failed_nodes(trials, name=self.attempt.name, nodes=failed)
                self.try_again(end)
            case RefusedStep(end=end):
                self._ask_for_step_again(end)
            case _:
                assert_never(decision)

    def _ask_for_step_again(self, end: AttemptEnd) -> None:
        self.no_steps += 1
        if self.no_steps >= MOST_NO_STEPS or self.cancelled:
            self.close(end)
            return
        self.abandon(end, status=NO_STEP)
        pause_s = min(2.0 ** (self.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = time.monotonic() + pause_s

    @property
    def _last_place(self) -> StepPlace:
        return self.place or StepPlace(job_id="", nodes=(), host=this_host())
