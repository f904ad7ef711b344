"""One job of Slurm for each trial."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from evaluators.attempt.attempt import Attempt
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.support import program_of
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.trial_job import TrialContext, TrialJob
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result

READERS = 4


class SlurmBackend:
    """Trials as jobs, each submitted once; an object made later finds them again.

    Args:
        tracker: shared with other backends of the process; one of its own otherwise.
        program: what trains; the profile's otherwise.
    """

    name = "slurm"
    simulated = False

    def __init__(
        self,
        profile: ClusterProfile,
        *,
        tracker: JobTracker | None = None,
        program: Program | None = None,
    ) -> None:
        self.tracker = tracker or JobTracker.of(profile)
        self._owns_tracker = tracker is None
        self._context = TrialContext(
            profile=profile,
            program=program or program_of(profile),
            tracker=self.tracker,
            readers=_readers(),
        )
        self._jobs: dict[str, TrialJob] = {}
        self._lock = threading.RLock()

    def submit(self, request: TrialRequest) -> None:
        """Start the trial, unless its token is running or has a result: then do nothing."""
        with self._lock:
            if self._job(request) is None and read_result(request.directory) is None:
                self._jobs[request.token] = TrialJob.begin(request, self._context)

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return by token the outcome of each trial that has ended, and how each other one stands.

        A trial that was never submitted is left out.
        """
        notices = _EndNotices()
        with self._lock:
            answers = {request.token: self._answer(request, notices) for request in requests}
            if self._jobs:
                self.tracker.watch()
        return {token: answer for token, answer in answers.items() if answer}

    def cancel(self, token: str) -> None:
        """End the trial's jobs; its outcome becomes `cancelled` once they have ended."""
        with self._lock:
            if job := self._jobs.get(token):
                job.cancel()

    def close(self) -> None:
        """Let go: jobs run on, and are found by their folders and names, by this object too."""
        if self._owns_tracker:
            self.tracker.close()
        with self._lock:
            self._context.readers.shutdown(wait=True, cancel_futures=True)
            self._context = replace(self._context, readers=_readers())
            self._jobs.clear()

    def _job(self, request: TrialRequest) -> TrialJob | None:
        """Return the trial, where it is under way."""
        job = self._jobs.get(request.token)
        if job is None and read_result(request.directory) is None:
            job = TrialJob.resume(request, self._context)
            if job:
                self._jobs[request.token] = job
        return job

    def _answer(
        self, request: TrialRequest, notices: _EndNotices
    ) -> TrialOutcome | TrialProgress | None:
        job = self._job(request)
        if job is None:
            return read_result(request.directory)
        answer = job.advance(end_noticed=notices.has(job.attempt))
        if isinstance(answer, TrialOutcome) and read_result(request.directory):
            del self._jobs[request.token]
        return answer


def _readers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(READERS, thread_name_prefix="slurm-results")


class _EndNotices:
    """The notices that attempts have ended, as they were when each folder was first listed."""

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
