"""An attempt that is a job of its own: submitted once, found again, followed to its end."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from pathlib import Path

from autotune.schemas.choices import TrialState
from evaluators.attempt import AttemptState, NeverSubmitted, never_prepared, transition
from evaluators.slurm.attempt_files import AttemptFiles, read_attempt_files
from evaluators.slurm.job_decision import (
    EndAttempt,
    Ended,
    JobStatus,
    Stay,
    SubmitAgain,
    blame_slurm,
    decide,
)
from evaluators.slurm.job_records import SubmitState, steady_time
from evaluators.slurm.job_tracker import JobTracker, Submission
from evaluators.trial import log_end as end_of_log

log = logging.getLogger(__name__)

LOOK_BACK_S = 3600.0
"""How long before its submission accounting is queried about a job: clocks differ."""


class JobAttempt:
    """One job, identified by name. Its whole state can be recovered from its folder and from Slurm.

    Attributes:
        name: of the job, globally unique.
        folder: of the attempt; see `attempt_files`.
        state: of the attempt.
        files: contents of the folder at the last look.
        status: Slurm's last report; None before the first.
        cancelled: whether it must end.

    Args:
        prepare: writes the files just before submission, in the tracker's thread.
        time_limit_s: of the job; see `evaluators.time_limit`.
        most_submissions: number of jobs that Slurm accepted and then lost, after which the attempt
            is lost.
    """

    def __init__(
        self,
        tracker: JobTracker,
        *,
        name: str,
        folder: Path,
        prepare: Callable[[], None],
        time_limit_s: float = math.inf,
        most_submissions: int,
        cancelled: bool = False,
    ) -> None:
        self.name, self.folder = name, folder
        self.state = AttemptState.NEW
        self.files = AttemptFiles()
        self.status: JobStatus | None = None
        self.cancelled = cancelled
        self._tracker = tracker
        self._prepare = prepare
        self._time_limit_s = time_limit_s
        self._most_submissions = most_submissions
        self._forgotten = 0
        self._begun_by: float | None = None
        self._read_for: tuple[object, bool] | None = None
        self._last: tuple[int, Stay | NeverSubmitted | Ended] | None = None

    def submit(self) -> None:
        """Queue its submission, after those that already wait."""
        self.state = transition(self.state, AttemptState.SUBMITTING)
        self._tracker.submit(Submission(name=self.name, folder=self.folder, prepare=self._prepare))
        if self.cancelled:
            self._tracker.cancel(self.name)

    def follow(self, files: AttemptFiles) -> None:
        """Resume a job that an earlier process may have submitted; `files`: of its folder."""
        self.state = transition(self.state, AttemptState.SUBMITTING)
        submitted_at, since, now = files.intended_at or 0.0, files.first_intended_at, time.time()
        if submitted_at > now:
            # The clock was ahead, nobody knows how far: any job of this name may be its own.
            submitted_at, since = now, 0.0
        self._tracker.follow(self.name, submitted_at=submitted_at, since=since)
        self._take_in(files)
        if self.cancelled:
            self._tracker.cancel(self.name)

    def cancel(self) -> None:
        self.cancelled, self._last = True, None
        self._tracker.cancel(self.name)

    def advance(self, *, end_noticed: bool = False) -> Stay | NeverSubmitted | Ended:
        """Return the current decision, and change the state accordingly.

        Args:
            end_noticed: whether its script has reported its end elsewhere.
        """
        version = self._tracker.version
        if self._last and self._last[0] == version and not end_noticed:
            return self._last[1]
        decision = self._next_decision(end_noticed=end_noticed)
        self.state = transition(self.state, decision.state)
        # While Slurm shows a job that has not ended, only the tracker reports changes.
        alive = self._read_for is not None and self._read_for[0]
        self._last = (version, decision) if alive else None
        return decision

    def _next_decision(self, *, end_noticed: bool) -> Stay | NeverSubmitted | Ended:
        submitted = self._tracker.submit_status(self.name)
        if submitted.state is SubmitState.TRIED:
            self.status = self._tracker.status(self.name)
            return self._decide(self.status, submitted.at, end_noticed=end_noticed)
        if submitted.state is SubmitState.REFUSED:
            error = f"Slurm refused its job: {submitted.error}"
            return NeverSubmitted(status=TrialState.REFUSED, error=error)
        if submitted.state is SubmitState.FAILED:
            return never_prepared(submitted.error)
        if self.cancelled and self._tracker.withdraw(self.name):
            return NeverSubmitted(status=TrialState.CANCELLED, error="cancelled")
        reason = self._tracker.trouble or self._tracker.full or "being submitted to Slurm"
        return Stay(state=AttemptState.SUBMITTING, reason=reason)

    def _decide(
        self, status: JobStatus, submitted_at: float, *, end_noticed: bool
    ) -> Stay | NeverSubmitted | Ended:
        # The folder is read again only when something may have changed there.
        living = tuple((job.id, job.state) for job in status.jobs if not job.finished)
        unended = self.files.end is None and (end_noticed or not living)
        if unended or self._read_for != (living, end_noticed):
            self._take_in(read_attempt_files(self.folder))
            self._read_for = (living, end_noticed)
        decision = decide(
            self.files,
            status,
            time_limit_s=self._time_limit_s,
            submitted_at=submitted_at,
            begun_by=self._begun_by,
            cancelled=self.cancelled,
        )
        match decision:
            case EndAttempt():
                log_end = end_of_log(self.folder)
                return blame_slurm(decision, log_end, cancelled=self.cancelled)
            case SubmitAgain():
                return self._submit_again()
            case Stay(ask_accounting=True):
                since = min(self.files.intended_at or math.inf, time.time())
                nodes = self.files.claim.nodes if self.files.claim else ""
                self._tracker.look_up(self.name, since=since - LOOK_BACK_S, nodes=nodes)
        return decision

    def _take_in(self, files: AttemptFiles) -> None:
        self.files = files
        if files.claimed and self._begun_by is None:
            self._begun_by = steady_time()
        for job_id in (files.job_id, files.claim and files.claim.job_id):
            if job_id:
                self._tracker.recognise(self.name, job_id)

    def _submit_again(self) -> NeverSubmitted | Stay:
        self._forgotten += self.files.job_id is not None
        if self._forgotten >= self._most_submissions:
            error = "Slurm took its job several times and then knew none"
            return NeverSubmitted(status=TrialState.LOST, error=error)
        log.warning("%s is not in the queue: it is submitted again", self.name)
        self.submit()
        return Stay(state=AttemptState.SUBMITTING, reason="being submitted to Slurm again")
