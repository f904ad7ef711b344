"""One Slurm job per trial, from submission to outcome."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import assert_never

from autotune.schemas.choices import TrialState
from evaluators.attempt import (
    Attempt,
    AttemptBackend,
    AttemptedTrial,
    AttemptState,
    NeverSubmitted,
    TrialContext,
)
from evaluators.cluster.profile import ClusterProfile
from evaluators.failed_nodes import nodes_to_exclude, note_failed_nodes
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.batch_script import job_script, write_scripts
from evaluators.slurm.commands import SlurmError
from evaluators.slurm.job_attempt import JobAttempt
from evaluators.slurm.job_decision import (
    AbandonAttempt,
    EndAttempt,
    Ended,
    RefusedStep,
    Stay,
    failed_nodes,
)
from evaluators.slurm.job_tracker import JobTracker
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial import log_end as end_of_log

GLANCE_S = 0.02
"""Most logs are read in less: then the nodes need not wait for another look."""


@dataclass(frozen=True, kw_only=True)
class JobContext(TrialContext):
    """What every trial of a backend needs."""

    tracker: JobTracker


@dataclass(kw_only=True, eq=False)
class TrialJob(AttemptedTrial):
    """One trial. Its whole state can be recovered from the folders and from Slurm.

    Attributes:
        job: of the attempt.
    """

    context: JobContext
    job: JobAttempt = field(init=False)

    def __post_init__(self) -> None:
        self.job = self._job()

    def begin(self) -> None:
        """Submit the attempt's job, or resume one that was submitted before."""
        files = read_attempt_files(self.attempt.folder)
        self.become(AttemptState.SUBMITTING)
        if files.intended_at is not None or files.claimed:
            self.job.follow(files)
        else:
            self.job.submit()

    def cancel(self) -> None:
        super().cancel()
        self.job.cancel()

    def advance(self, *, end_noticed: bool) -> TrialOutcome | TrialProgress:
        """Return its progress or outcome; `end_noticed`: whether the attempt's end was noticed."""
        if self.reading is None:
            self._act_on(self.job.advance(end_noticed=end_noticed))
            if self.reading:
                wait([self.reading], timeout=GLANCE_S)
        answer = self.current()
        if isinstance(answer, TrialProgress) and self.reading is None:
            return self._with_trouble(answer)
        return answer

    def become(self, state: AttemptState) -> None:
        super().become(state)
        if state in {AttemptState.ENDED, AttemptState.ABANDONED}:
            self.context.tracker.forget(self.attempt.name)

    def begin_next_attempt(self, reason: str) -> None:
        super().begin_next_attempt(reason)
        self.job = self._job()
        self.begin()

    def _with_trouble(self, progress: TrialProgress) -> TrialProgress:
        tracker = self.context.tracker
        silent = tracker.trouble if progress.phase == "waiting" else tracker.long_trouble
        return replace(progress, reason=silent) if silent else progress

    def _act_on(self, decision: Stay | NeverSubmitted | Ended) -> None:
        match decision:
            case Stay(state=state, progress=progress):
                self.become(state)
                self.answer = progress
                if self.cancelled or self.job.files.end:
                    self.context.tracker.watch(hurry=True)
            case NeverSubmitted(status=TrialState.REFUSED, error=error) if (
                excluded := self._excluded
            ):
                error += f" (without {', '.join(excluded)}, which failed)"
                self.settle(TrialState.NODE_FAIL, error)
            case NeverSubmitted(status=status, error=error):
                self.settle(status, error)
            case EndAttempt(end=end):
                self.close(end)
            case AbandonAttempt(end=end) | RefusedStep(end=end):
                self._note_failed_nodes(end)
                # Slurm may have put the job back, or there is a second one.
                self.context.tracker.cancel(self.attempt.name)
                self.try_again(end)
            case _:
                assert_never(decision)

    @property
    def _excluded(self) -> tuple[str, ...]:
        failures = self.context.profile.retries.node_failures
        trials = self.attempt.ended_folder.parent
        return nodes_to_exclude(trials, failures=failures, token=self.request.token)

    def _nodes(self, end: AttemptEnd) -> tuple[Sequence[str], Sequence[str]]:
        try:
            hosts = self.context.tracker.slurm.nodes(end.host) if end.host else []
        except SlurmError:
            hosts = []
        return hosts, hosts

    def _note_failed_nodes(self, end: AttemptEnd) -> None:
        if end.status is TrialState.NODE_FAIL:
            attempt = self.attempt
            by_srun = failed_nodes(end_of_log(attempt.folder))
            nodes = self.context.tracker.failed_nodes(attempt.name) | by_srun
            note_failed_nodes(attempt.ended_folder.parent, name=attempt.name, nodes=sorted(nodes))

    def _job(self) -> JobAttempt:
        attempt = self.attempt
        return JobAttempt(
            self.context.tracker,
            name=attempt.name,
            folder=attempt.folder,
            prepare=self._preparation(attempt),
            time_limit_s=self.request.protocol.time_limit_s,
            most_submissions=self.context.profile.retries.attempts,
            cancelled=self.cancelled,
        )

    def _preparation(self, attempt: Attempt) -> Callable[[], None]:
        profile, program = self.context.profile, self.context.program

        def prepare() -> None:
            script = job_script(attempt, profile, exclude=self._excluded)
            write_scripts(attempt, profile, program, script)

        return prepare


class SlurmBackend(AttemptBackend[TrialJob]):
    """Runs trials as jobs, each submitted once. A later object finds them again.

    Args:
        tracker: shared with other backends of the process. Default: its own.
        program: the trainer. Default: the profile's.
    """

    name = "slurm"

    def __init__(
        self,
        profile: ClusterProfile,
        *,
        tracker: JobTracker | None = None,
        program: Program | None = None,
    ) -> None:
        super().__init__(profile, program)
        self.tracker = tracker or JobTracker.of(profile)
        self._owns_tracker = tracker is None
        self._ended_in = cache(_names_in)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        with self._lock:
            self._ended_in = cache(_names_in)
            answers = super().poll(requests)
            if self._trials:
                self.tracker.watch()
        return answers

    def close(self) -> None:
        if self._owns_tracker:
            self.tracker.close()
        super().close()

    def _begin(self, request: TrialRequest) -> TrialJob:
        context = JobContext(
            profile=self._profile,
            program=self._program,
            readers=self._readers,
            tracker=self.tracker,
        )
        trial = TrialJob.of(request, context)
        trial.begin()
        return trial

    def _advance(self, trial: TrialJob) -> TrialOutcome | TrialProgress:
        attempt = trial.attempt
        return trial.advance(end_noticed=attempt.name in self._ended_in(attempt.ended_folder))


def _names_in(folder: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()
