"""A trial whose attempts are jobs of its own, until it has one outcome."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from typing import assert_never

from autotune.files import write_whole
from autotune.schemas import TrialState
from evaluators.attempt.attempt import CANCELLED, Attempt, attempts_of
from evaluators.attempt.never_submitted import NeverSubmitted
from evaluators.attempt.trial_result import abandon, mark_cancelled, without_run, write_outcome
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import read_attempt_files, read_log_end
from evaluators.slurm.batch_script import (
    BODY_SCRIPT,
    JOB_SCRIPT,
    body_script,
    job_script,
    launcher_of,
)
from evaluators.slurm.failed_nodes import nodes_to_exclude, note_failed_nodes
from evaluators.slurm.job_attempt import JobAttempt
from evaluators.slurm.job_decision import AbandonAttempt, EndAttempt, Ended, RefusedStep, Stay
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.srun_log import failed_nodes
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

GLANCE_S = 0.02
"""Most logs are read in less: then the nodes need not wait for another look."""
_READING = TrialProgress(phase="running", reason="reading what it left")


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What every trial of a backend needs."""

    profile: ClusterProfile
    program: Program
    tracker: JobTracker
    readers: Executor


class TrialJob:
    """One trial. All that it keeps can be had again from the folders and from Slurm."""

    def __init__(self, request: TrialRequest, context: TrialContext) -> None:
        self.request = request
        self._context = context
        self._reading: Future[TrialOutcome] | None = None
        self._known: tuple[int, TrialProgress] | None = None
        self._set_attempt(Attempt(request=request, number=1))

    @classmethod
    def resume(cls, request: TrialRequest, context: TrialContext) -> TrialJob | None:
        """Take up a trial that was begun before; None where nothing was ever submitted."""
        attempts = attempts_of(request)
        if not attempts:
            return None
        trial = cls(request, context)
        trial._set_attempt(attempts[-1])
        files = read_attempt_files(attempts[-1].folder)
        if files.abandoned:
            trial._begin_attempt(attempts[-1].number + 1)
        elif files.intended_at is not None or files.claimed:
            trial._job.follow(files)
        elif len(attempts) > 1:
            trial._begin_attempt(attempts[-1].number)
        else:
            return None
        return trial

    @classmethod
    def begin(cls, request: TrialRequest, context: TrialContext) -> TrialJob:
        """Begin a trial: its first attempt is submitted."""
        trial = cls(request, context)
        trial._begin_attempt(1)
        return trial

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    def cancel(self) -> None:
        """Mark it first: whatever happens from here on, the trial is to be ended."""
        if self._reading or self._job.cancelled:
            return
        mark_cancelled(self.request)
        self._known = None
        self._job.cancel()

    def advance(self, *, end_noticed: bool) -> TrialOutcome | TrialProgress:
        """Return how it stands; `end_noticed`: the notice of the attempt's end lies there."""
        if self._reading is None:
            version = self._context.tracker.version
            if self._known and self._known[0] == version and not end_noticed:
                return self._told(self._known[1])
            progress = self._act_on(self._job.advance(end_noticed=end_noticed))
            if self._job.alive:
                self._known = (version, progress)  # nothing but the tracker can change it
            if self._reading is None:
                return self._told(progress)
            wait([self._reading], timeout=GLANCE_S)
        return self._reading.result() if self._reading.done() else _READING

    def _told(self, progress: TrialProgress) -> TrialProgress:
        """Return what is told of it while Slurm is silent: of what runs that it did, so far."""
        tracker = self._context.tracker
        silent = tracker.trouble if progress.phase == "waiting" else tracker.long_trouble
        return replace(progress, reason=silent) if silent else progress

    def _act_on(self, decision: Stay | NeverSubmitted | Ended) -> TrialProgress:
        """Do what follows from what was decided of the attempt, and return how the trial stands."""
        tracker, attempt = self._context.tracker, self._attempt
        match decision:
            case Stay(progress=progress):
                if self._job.cancelled or self._job.files.end:
                    tracker.watch(hurry=True)
                return progress
            case NeverSubmitted(status=status, error=error):
                self._end_with(lambda: without_run(attempt, status, error))
            case EndAttempt(end=end):
                self._close(end)
            case AbandonAttempt(end=end) | RefusedStep(end=end):
                return self._try_again(end)
            case _:
                assert_never(decision)
        return _READING

    def _begin_attempt(self, number: int) -> None:
        self._set_attempt(Attempt(request=self.request, number=number))
        self._job.submit()

    def _set_attempt(self, attempt: Attempt) -> None:
        self._attempt, self._known = attempt, None
        self._job = JobAttempt(
            self._context.tracker,
            name=attempt.name,
            folder=attempt.folder,
            prepare=lambda: self._prepare(attempt),
            time_limit_s=self.request.protocol.time_limit_s,
            most_submissions=self._context.profile.retries.attempts,
            cancelled=(self.request.directory / CANCELLED).exists(),
        )

    def _prepare(self, attempt: Attempt) -> None:
        """Write what is run, just before it is submitted; in the tracker's thread."""
        profile, program = self._context.profile, self._context.program
        failures = profile.retries.node_failures
        exclude = nodes_to_exclude(attempt.ended_folder.parent, failures=failures)
        launcher = launcher_of(profile, self.request)
        files = {
            **program.files(self.request, attempt.folder),
            BODY_SCRIPT: body_script(attempt, profile, program, launcher),
            JOB_SCRIPT: job_script(attempt, profile, exclude=exclude),
        }
        attempt.ended_folder.mkdir(parents=True, exist_ok=True)
        attempt.folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():  # a job of an earlier try may be reading them
            write_whole(attempt.folder / name, text)

    def _try_again(self, end: AttemptEnd) -> TrialProgress:
        """Begin another attempt, unless there were enough."""
        tracker, attempt = self._context.tracker, self._attempt
        if end.status is TrialState.NODE_FAIL:
            by_srun = failed_nodes(read_log_end(attempt.folder))
            nodes = tracker.failed_nodes(attempt.name) | by_srun
            note_failed_nodes(attempt.ended_folder.parent, name=attempt.name, nodes=sorted(nodes))
        most = self._context.profile.retries.attempts
        tracker.cancel(attempt.name)  # a job that Slurm put back, or a second one
        if attempt.number >= most:
            self._close(replace(end, reason=f"{end.reason}, in each of {most} attempts"))
            return _READING
        abandon(attempt, end, status=str(end.status))
        tracker.forget(attempt.name)
        self._begin_attempt(attempt.number + 1)
        return TrialProgress(phase="waiting", reason=f"to be started again: {end.reason}")

    def _close(self, end: AttemptEnd) -> None:
        folder, program = self._attempt.folder, self._context.program
        self._end_with(lambda: program.outcome(self.request, folder, end))

    def _end_with(self, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        self._context.tracker.forget(self._attempt.name)
        self._reading = self._context.readers.submit(write_outcome, self._attempt, read)
