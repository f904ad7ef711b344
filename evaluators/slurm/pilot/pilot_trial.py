"""One trial in pilot mode while it is under way, and how it comes to its one outcome."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from typing import assert_never

from autotune.schemas import TrialState
from evaluators.attempt.abandonment import abandoned_status
from evaluators.attempt.attempt import CANCELLED, Attempt, attempts_of
from evaluators.attempt.attempt_state import HOLDING_NODES, AttemptState, transition
from evaluators.attempt.trial_result import abandon, without_run, write_outcome
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import read_attempt_files, read_log_end
from evaluators.slurm.failed_nodes import note_failed_nodes
from evaluators.slurm.job_decision import AbandonAttempt, EndAttempt, RefusedStep
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import Allocation
from evaluators.slurm.pilot.scheduler import WaitingTrial
from evaluators.slurm.pilot.step import StepPlace, StepProcess, this_host
from evaluators.slurm.pilot.step_cleanup import StepCleanup
from evaluators.slurm.pilot.step_decision import NO_LOSS, NodeLoss, decide_step
from evaluators.slurm.srun_log import failed_nodes, why_never_launched
from evaluators.slurm.steady_clock import steady_time
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

NO_STEP = "no step"
"""The status of an attempt for which Slurm made no step: it is not the trial's, nor a node's."""
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


@dataclass(kw_only=True, eq=False)
class PilotTrial:
    """Changed by the dispatcher's thread alone, but for `cancelled`.

    Attributes:
        state: of the attempt.
        answer: what is told when somebody asks.
        place: of the attempt that runs, or ran last.
        gone_at: when its processes were found gone (`steady_time`).
        passed_over, passed_since: see `WaitingTrial`; the latter by the monotonic clock.
        failures: attempts that were abandoned, but for `no_steps`.
        reading: what it left, once it is known how it ended.
    """

    request: TrialRequest
    attempt: Attempt
    state: AttemptState = AttemptState.NEW
    answer: TrialOutcome | TrialProgress = field(
        default_factory=lambda: TrialProgress(phase="waiting")
    )
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    process: StepProcess | None = None
    place: StepPlace | None = None
    began: float = 0.0
    gone_at: float = 0.0
    passed_over: int = 0
    passed_since: float | None = None
    failures: int = 0
    no_steps: int = 0
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest) -> PilotTrial:
        """Return it with what its folder says about earlier attempts."""
        attempts = attempts_of(request)
        statuses = [abandoned_status(attempt.folder) for attempt in attempts]
        return cls(
            request=request,
            attempt=attempts[-1] if attempts else Attempt(request=request, number=1),
            cancelled=(request.directory / CANCELLED).exists(),
            failures=sum(status not in {None, NO_STEP} for status in statuses),
            no_steps=sum(status == NO_STEP for status in statuses),
        )

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

    def become(self, state: AttemptState) -> None:
        self.state = transition(self.state, state)

    def wait(self, reason: str) -> None:
        """Let it wait for nodes of the allocation."""
        self.become(AttemptState.PENDING)
        self.answer = TrialProgress(phase="waiting", reason=reason)

    def run(self, process: StepProcess, place: StepPlace) -> None:
        """Take in that it runs there."""
        self.become(AttemptState.RUNNING)
        self.process, self.place = process, place
        self.began = time.monotonic()
        self.passed_over, self.passed_since = 0, None
        nodes = ",".join(place.nodes)
        self.answer = TrialProgress(phase="running", job_id=place.job_id, host=nodes)

    def begin_next_attempt(self, reason: str) -> None:
        """Let another attempt wait for nodes, the last one being abandoned."""
        self.become(AttemptState.ABANDONED)
        self.attempt = Attempt(request=self.request, number=self.attempt.number + 1)
        self.state, self.process, self.place = AttemptState.NEW, None, None
        self.wait(reason)


class TrialEndings:
    """How trials end. Only one thread uses it.

    Attributes:
        no_step_before: until then (monotonic clock) Slurm is not asked for another step.
    """

    def __init__(self, context: PilotContext) -> None:
        self.no_step_before = float("-inf")
        self._context = context

    def processes_gone(self, trial: PilotTrial) -> None:
        """Take in that its processes have gone; of one that ended well the nodes are free at once.

        Others wait until it is known what became of their nodes, and of steps that are left.
        """
        trial.become(AttemptState.COMPLETING)
        trial.gone_at = steady_time()
        folder = trial.attempt.folder
        end = read_attempt_files(folder).end
        log_end = read_log_end(folder)
        # srun may exit with 0 although a node failed, or no task was started.
        blamed = failed_nodes(log_end) or why_never_launched(log_end)
        if end and end.exit_code == 0 and not blamed:
            self._decide(trial, NO_LOSS)
        elif trial.place:
            self._context.cleanup.end_steps(trial.attempt.name, job_id=trial.place.job_id)
        else:
            self._context.tracker.cancel(trial.attempt.name)  # it was a job of its own

    def advance(self, trial: PilotTrial) -> None:
        """Decide, once it is known what became of its nodes and that no step is left."""
        place = _place(trial)
        self._context.tracker.watch(hurry=True)
        loss = self._context.allocation.node_loss(place.job_id, place.nodes, since=trial.gone_at)
        if loss is not None and self._context.cleanup.gone(trial.attempt.name):
            self._decide(trial, loss)
        elif isinstance(trial.answer, TrialProgress):
            trial.answer = replace(trial.answer, reason=self._context.tracker.trouble)

    def settle(self, trial: PilotTrial, status: TrialState, error: str) -> None:
        """End a trial that does not run with this outcome."""
        attempt = trial.attempt
        self._end(trial, lambda: without_run(attempt, status, error))

    def _decide(self, trial: PilotTrial, loss: NodeLoss) -> None:
        folder, place = trial.attempt.folder, _place(trial)
        log_end = read_log_end(folder)
        decision = decide_step(
            read_attempt_files(folder),
            job_id=place.job_id,
            nodes=place.nodes,
            loss=loss,
            log_end=log_end,
            time_limit_s=trial.request.protocol.time_limit_s,
            ended_at=trial.gone_at,
            cancelled=trial.cancelled,
        )
        match decision:
            case EndAttempt(end=end):
                self._close(trial, end)
            case AbandonAttempt(end=end):
                self._try_again(trial, end, loss.failed_nodes | failed_nodes(log_end))
            case RefusedStep(end=end):
                self._ask_for_step_again(trial, end)
            case _:
                assert_never(decision)

    def _ask_for_step_again(self, trial: PilotTrial, end: AttemptEnd) -> None:
        """Ask once more, after a pause that doubles each time, unless it was asked often enough."""
        trial.no_steps += 1
        if trial.no_steps >= MOST_NO_STEPS or trial.cancelled:
            self._close(trial, end)
            return
        self._abandon(trial, NO_STEP, end)
        pause_s = min(2.0 ** (trial.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = max(self.no_step_before, time.monotonic() + pause_s)

    def _try_again(self, trial: PilotTrial, end: AttemptEnd, failed: frozenset[str]) -> None:
        """Begin another attempt, unless there were enough."""
        trials, name = trial.attempt.ended_folder.parent, trial.attempt.name
        note_failed_nodes(trials, name=name, nodes=sorted(failed))
        trial.failures += 1
        most = self._context.profile.retries.attempts
        if trial.failures >= most:
            self._close(trial, replace(end, reason=f"{end.reason}, in each of {most} attempts"))
            return
        self._abandon(trial, str(end.status), end)

    def _abandon(self, trial: PilotTrial, status: str, end: AttemptEnd) -> None:
        abandon(trial.attempt, end, status=status)
        trial.begin_next_attempt(f"to be started again: {end.reason}")

    def _close(self, trial: PilotTrial, end: AttemptEnd) -> None:
        request, folder, program = trial.request, trial.attempt.folder, self._context.program
        self._end(trial, lambda: program.outcome(request, folder, end))

    def _end(self, trial: PilotTrial, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        trial.become(AttemptState.ENDED)
        if isinstance(trial.answer, TrialProgress):
            trial.answer = replace(trial.answer, reason="reading what it left")
        trial.reading = self._context.readers.submit(write_outcome, trial.attempt, read)


def _place(trial: PilotTrial) -> StepPlace:
    """Return where the attempt ran; no nodes where that was not written."""
    return trial.place or StepPlace(job_id="", nodes=(), host=this_host())
