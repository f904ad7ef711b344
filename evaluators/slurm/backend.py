"""One Slurm job per trial."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from evaluators.attempt.attempt import Attempt, attempts_of
from evaluators.attempt.driver import TrialBackend, result_readers
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.support import program_of
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.trial_job import JobContext, TrialJob
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest


class SlurmBackend(TrialBackend[TrialJob]):
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
        super().__init__()
        self.tracker = tracker or JobTracker.of(profile)
        self._owns_tracker = tracker is None
        self._context = JobContext(
            profile=profile,
            program=program or program_of(profile),
            tracker=self.tracker,
            readers=result_readers(self.name),
        )
        self._notices = _EndNotices()

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        with self._lock:
            self._notices = _EndNotices()
            answers = super().poll(requests)
            if self._trials:
                self.tracker.watch()
        return answers

    def close(self) -> None:
        """Detach: jobs keep running and can be found again by their folders and names."""
        if self._owns_tracker:
            self.tracker.close()
        with self._lock:
            self._context.readers.shutdown(wait=True, cancel_futures=True)
            self._context = replace(self._context, readers=result_readers(self.name))
            self._trials.clear()

    def _begin(self, request: TrialRequest) -> TrialJob:
        trial = TrialJob.of(request, self._context)
        trial.submit()
        return trial

    def _resume(self, request: TrialRequest) -> TrialJob | None:
        return TrialJob.resume(request, self._context) if attempts_of(request) else None

    def _advance(self, trial: TrialJob) -> TrialOutcome | TrialProgress:
        return trial.advance(end_noticed=self._notices.has(trial.attempt))


class _EndNotices:
    """Notices of ended attempts, as each folder was first listed."""

    def __init__(self) -> None:
        self._names: dict[Path, frozenset[str]] = {}

    def has(self, attempt: Attempt) -> bool:
        folder = attempt.ended_folder
        if folder not in self._names:
            try:
                self._names[folder] = frozenset(os.listdir(folder))
            except OSError:
                self._names[folder] = frozenset()
        return attempt.name in self._names[folder]
