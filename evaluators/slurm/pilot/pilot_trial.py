"""A trial in pilot mode, from submission to outcome."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Self, assert_never

from evaluators.attempt import (
    HOLDING_NODES,
    AttemptedTrial,
    AttemptState,
    TrialContext,
    abandoned_status,
    attempts_of,
)
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import note_failed_nodes, read_attempt_files
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
from evaluators.slurm.pilot.step import StepCleanup, StepPlace, StepProcess, this_host
from evaluators.trial import TrialProgress, TrialRequest
from evaluators.trial import log_end as end_of_log

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
    cleanup: StepCleanup


@dataclass(kw_only=True, eq=False)
class PilotTrial(AttemptedTrial):
    """A trial in pilot mode. Only the dispatcher's thread changes it, except for `cancelled`.

    Attributes:
        place: of the current or last attempt.
        gone_at: when its processes were found gone (`steady_time`).
        passed_over, passed_since: see `WaitingTrial`; the latter by the monotonic clock.
        no_steps: number of attempts for which Slurm created no step.
        no_step_before: Slurm is not asked for another step until then (monotonic clock).
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
        statuses = [abandoned_status(attempt.folder) for attempt in attempts_of(request)]
        trial.no_steps = statuses.count(NO_STEP)
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
        """Queue it for nodes of the allocation."""
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
            self.context.cleanup.end_steps(self.attempt.name, job_id=self.place.job_id)
        else:
            self.context.tracker.cancel(self.attempt.name)  # it was a job of its own

    def advance(self) -> None:
        """Decide, once the state of its nodes is known and no step is left."""
        place, context = self._last_place, self.context
        context.tracker.watch(hurry=True)
        loss = context.allocation.node_loss(place.job_id, place.nodes, since=self.gone_at)
        if loss is not None and context.cleanup.gone(self.attempt.name):
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
        """Request a step again, after a pause that doubles each time, up to a limit."""
        self.no_steps += 1
        if self.no_steps >= MOST_NO_STEPS or self.cancelled:
            self.close(end)
            return
        self.abandon(end, status=NO_STEP)
        pause_s = min(2.0 ** (self.no_steps - 1), LONGEST_PAUSE_S)
        self.no_step_before = time.monotonic() + pause_s

    @property
    def _last_place(self) -> StepPlace:
        """Return where the attempt ran; no nodes if that was not recorded."""
        return self.place or StepPlace(job_id="", nodes=(), host=this_host())
