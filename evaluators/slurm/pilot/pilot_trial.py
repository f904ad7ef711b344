"""One trial in pilot mode, while it is under way."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum

from autotune.schemas import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import (
    ABANDONED,
    CANCELLED,
    Attempt,
    AttemptFiles,
    attempts_of,
    note_failed_nodes,
    read_attempt_files,
    read_log_end,
)
from evaluators.slurm.job_decision import (
    SETTLE_S,
    Abandon,
    JobStatus,
    StepRefused,
    decide_step,
    failed_nodes,
    judge,
)
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import NO_LOSS, Allocation, NodeLoss
from evaluators.slurm.pilot.scheduler import Waiting
from evaluators.slurm.pilot.step import Run, StepPlace, this_host
from evaluators.slurm.pilot.step_cleanup import StepCleanup
from evaluators.slurm.trial_result import abandon, without_run, write_outcome
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

NO_STEP = "no step"
"""The status of an attempt for which Slurm made no step: it is not the trial's, nor a node's."""


class Phase(Enum):
    """How far a trial has come."""

    NEW = "new"  # its folder has not been looked at
    WAITING = "waiting"
    RUNNING = "running"
    ABANDONED = "over"  # its processes are gone; its nodes are not free until it is judged
    READING = "reading"


@dataclass(kw_only=True, eq=False)
class PilotTrial:
    """Changed by the dispatcher's thread alone, but for `cancelled`.

    Attributes:
        told: what is answered when somebody asks.
        place: of the attempt that runs, or ran last.
        over_at: when its processes were found gone (epoch).
        passed_over, passed_since: see `Waiting`; the latter by the monotonic clock.
        failures: attempts that were given up, but for `no_steps`.
    """

    request: TrialRequest
    attempt: Attempt
    told: TrialOutcome | TrialProgress = field(
        default_factory=lambda: TrialProgress(phase="waiting")
    )
    phase: Phase = Phase.NEW
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    run: Run | None = None
    place: StepPlace | None = None
    began: float = 0.0
    over_at: float = 0.0
    passed_over: int = 0
    passed_since: float | None = None
    failures: int = 0
    no_steps: int = 0
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest) -> PilotTrial:
        """With what its folder says about earlier attempts."""
        attempts = attempts_of(request)
        given_up = [_status(attempt) for attempt in attempts]
        return cls(
            request=request,
            attempt=attempts[-1] if attempts else Attempt(request=request, number=1),
            cancelled=(request.directory / CANCELLED).exists(),
            failures=sum(status not in {None, NO_STEP} for status in given_up),
            no_steps=sum(status == NO_STEP for status in given_up),
        )

    @property
    def width(self) -> int:
        return self.request.strategy.num_nodes

    @property
    def holds_nodes(self) -> bool:
        return self.phase in {Phase.RUNNING, Phase.ABANDONED}

    def waiting(self, now: float) -> Waiting:
        """As the packing sees it."""
        return Waiting(
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
        self.phase, self.run, self.place = Phase.WAITING, None, None
        self.told = TrialProgress(phase="waiting", reason=reason)

    def runs(self, run: Run, place: StepPlace) -> None:
        self.phase, self.run, self.place = Phase.RUNNING, run, place
        self.began = time.monotonic()
        self.passed_over, self.passed_since = 0, None
        self.told = TrialProgress(phase="running", job_id=place.job_id, host=",".join(place.nodes))

    def next_attempt(self) -> None:
        self.attempt = Attempt(request=self.request, number=self.attempt.number + 1)


def _status(attempt: Attempt) -> str | None:
    """Of an attempt that was given up."""
    try:
        plain = json.loads((attempt.folder / ABANDONED).read_text(encoding="utf-8"))
        return str(plain["status"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"


MOST_NO_STEPS = 10
LONGEST_PAUSE_S = 15.0
"""Slurm makes no steps for some seconds after its controller was restarted."""


@dataclass(frozen=True, kw_only=True)
class PilotContext:
    """What every trial of a backend needs."""

    profile: ClusterProfile
    program: Program
    tracker: JobTracker
    allocation: Allocation
    cleanup: StepCleanup
    readers: Executor


class Endings:
    """Only one thread uses it.

    Attributes:
        no_step_before: until then (monotonic clock) Slurm is not asked for another step.
    """

    def __init__(self, context: PilotContext) -> None:
        self.no_step_before = float("-inf")
        self._context = context

    def over(self, trial: PilotTrial) -> None:
        """Its processes are gone. One that ended well is done; its nodes are free at once."""
        trial.phase, trial.over_at = Phase.ABANDONED, time.time()
        place = _place(trial)
        if _ended_well(trial):
            self._judge(trial, place, NO_LOSS)
            return
        if trial.place:
            self._context.cleanup.end_steps(trial.attempt.name, job_id=place.job_id)
        else:
            self._context.tracker.cancel(trial.attempt.name)  # it was a job of its own

    def advance(self, trial: PilotTrial) -> None:
        """Judge it, once it is known what became of its nodes and that no step is left."""
        place = _place(trial)
        self._context.tracker.watch(hurry=True)
        node_loss = self._context.allocation.node_loss(
            place.job_id, place.nodes, since=trial.over_at
        )
        if node_loss is None or not self._context.cleanup.gone(trial.attempt.name):
            return
        self._judge(trial, place, node_loss)

    def settle(self, trial: PilotTrial, status: TrialState, error: str) -> None:
        """An outcome of a trial that does not run."""
        attempt = trial.attempt
        self._end_with(trial, lambda: without_run(attempt, status, error))

    def _judge(self, trial: PilotTrial, place: StepPlace, node_loss: NodeLoss) -> None:
        folder = trial.attempt.folder
        log_end = read_log_end(folder)
        found = verdict(
            read_attempt_files(folder),
            place,
            node_loss=node_loss,
            log_end=log_end,
            time_limit_s=trial.request.protocol.time_limit_s,
            ended_at=trial.over_at,
            cancelled=trial.cancelled,
        )
        if isinstance(found, StepRefused):
            self._no_step(trial, found.ended)
        elif isinstance(found, Abandon):
            self._retry(trial, found.ended, node_loss.failed_nodes | failed_nodes(log_end))
        else:
            self._close(trial, found)

    def _no_step(self, trial: PilotTrial, ended: AttemptEnd) -> None:
        trial.no_steps += 1
        if trial.no_steps >= MOST_NO_STEPS or trial.cancelled:
            self._close(trial, ended)
            return
        self._give_up(trial, NO_STEP, ended)
        pause_s = min(2.0 ** (trial.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = max(self.no_step_before, time.monotonic() + pause_s)

    def _retry(self, trial: PilotTrial, ended: AttemptEnd, failed: frozenset[str]) -> None:
        """Another attempt, unless there were enough."""
        trials, name = trial.attempt.ended_folder.parent, trial.attempt.name
        note_failed_nodes(trials, name=name, nodes=sorted(failed))
        trial.failures += 1
        most = self._context.profile.retries.attempts
        if trial.failures >= most:
            self._close(trial, replace(ended, reason=f"{ended.reason}, in each of {most} attempts"))
            return
        self._give_up(trial, str(ended.status), ended)

    def _give_up(self, trial: PilotTrial, status: str, ended: AttemptEnd) -> None:
        abandon(trial.attempt, ended, status=status)
        trial.next_attempt()
        trial.wait(f"to be started again: {ended.reason}")

    def _close(self, trial: PilotTrial, ended: AttemptEnd) -> None:
        request, folder, program = trial.request, trial.attempt.folder, self._context.program
        self._end_with(trial, lambda: program.outcome(request, folder, ended))

    def _end_with(self, trial: PilotTrial, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        trial.phase = Phase.READING
        if isinstance(trial.told, TrialProgress):
            trial.told = replace(trial.told, reason="reading what it left")
        trial.reading = self._context.readers.submit(write_outcome, trial.attempt, read)


def _place(trial: PilotTrial) -> StepPlace:
    """An attempt of which no place was written has none."""
    return trial.place or StepPlace(job_id="", nodes=(), host=this_host())


def _ended_well(trial: PilotTrial) -> bool:
    """srun may exit with 0 although a node failed."""
    folder = trial.attempt.folder
    end = read_attempt_files(folder).end
    return end is not None and end.exit_code == 0 and not failed_nodes(read_log_end(folder))


def verdict(
    evidence: AttemptFiles,
    place: StepPlace,
    *,
    node_loss: NodeLoss,
    log_end: str,
    time_limit_s: float,
    ended_at: float,
    cancelled: bool,
) -> AttemptEnd | Abandon | StepRefused:
    """Final, or another attempt is to follow.

    Args:
        node_loss: of the attempt's nodes.
        log_end: the last lines of the attempt's log, where srun speaks of itself, too.
        ended_at: when its processes were found gone (epoch).
    """
    # Nothing is to be waited for: the processes are gone, and so are its steps.
    sight = JobStatus(
        now=ended_at + SETTLE_S,
        asked_at=float("inf"),
        absent_since=ended_at,
        accounted=True,
    )
    said = judge(evidence, sight, time_limit_s=time_limit_s, cancelled=cancelled)
    ended = _placed(said if isinstance(said, AttemptEnd) else _never_said(said, ended_at), place)
    undecided = ended if isinstance(said, AttemptEnd) else replace(ended, status=None)
    found = decide_step(undecided, log_end, cancelled=cancelled)
    if isinstance(found, AttemptEnd) and (found.status is not None or found.exit_code == 0):
        return found
    if node_loss.status is not None:
        return Abandon(ended=replace(ended, status=node_loss.status, reason=node_loss.reason))
    if isinstance(found, AttemptEnd) and not isinstance(said, AttemptEnd):
        return Abandon(ended=ended)
    return found


def _never_said(found: object, ended_at: float) -> AttemptEnd:
    """Its processes are gone, and it did not say how it ended."""
    if isinstance(found, Abandon):
        return replace(found.ended, reason="its processes on the service's host were killed")
    return AttemptEnd(
        status=TrialState.LOST,
        reason="it was started and never began",
        exit_code=None,
        started_at=datetime.fromtimestamp(ended_at, UTC),
        duration_s=0.0,
    )


def _placed(ended: AttemptEnd, place: StepPlace) -> AttemptEnd:
    return replace(ended, host=",".join(place.nodes), job_id=place.job_id)
