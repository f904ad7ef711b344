"""Records of this backend's jobs by name: submission, reports of Slurm, cancellation.

Nothing here is thread-safe. Observations are compared by a clock that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from evaluators.slurm.commands import SlurmJob
from evaluators.slurm.job_decision import JobStatus

_AHEAD_S = time.time() - time.monotonic()


def steady_time() -> float:
    return _AHEAD_S + time.monotonic()


def steady_time_of(epoch: float) -> float:
    return steady_time() - max(0.0, time.time() - epoch)


CLOCKS_DIFFER_S = 2.0
"""The controller's clock counts whole seconds, and is not quite ours."""
CANCEL_AGAIN_S = 10.0
"""After so long a job that does not end is cancelled once more."""


class SubmitState(Enum):
    """Progress of a submission."""

    QUEUED = "queued"
    UNDER_WAY = "under way"
    TRIED = "tried"  # sbatch has ended, whether it printed an id or not
    REFUSED = "refused"
    FAILED = "failed"  # before sbatch was called


@dataclass(frozen=True, kw_only=True)
class SubmitStatus:
    """State of a submission.

    Attributes:
        at: when it reached the state (`steady_time`).
        job_id: as sbatch printed it.
        error: why it was refused or failed, or why sbatch printed no id.
    """

    state: SubmitState
    at: float
    job_id: str | None = None
    error: Exception | None = None

    def is_before(self, queried_at: float) -> bool:
        return self.state is SubmitState.TRIED and self.at < queried_at


@dataclass(frozen=True, kw_only=True)
class LookUp:
    """A query to accounting and about nodes, for a job that the queue does not show.

    Attributes:
        since: submission time of the oldest job to return (epoch).
        nodes: nodes to check for failures, as Slurm writes them.
    """

    since: float
    nodes: str


@dataclass(kw_only=True)
class _Record:
    """State of one job name.

    Attributes:
        since: time of the first submission (epoch); older jobs of the name are not ours.
        ids: ids of jobs that are ours whatever the clocks say.
        looked_up_at: last accounting query since `absent_since` (`steady_time`).
        look_up: the query to send next.
        cancelled_at: when its jobs were cancelled (`steady_time`), until no further job can appear.
        followed: whether a trial still uses the record; if not, it stays for its cancellation.
    """

    submitted: SubmitStatus
    since: float
    ids: set[str] = field(default_factory=set)
    absent_since: float | None = None
    looked_up_at: float | None = None
    look_up: LookUp | None = None
    ended_jobs: list[SlurmJob] = field(default_factory=list)
    failed_nodes: frozenset[str] | None = None
    cancelled_at: float | None = None
    followed: bool = True

    def owns(self, job: SlurmJob) -> bool:
        at = job.submitted_at
        return job.id in self.ids or at is None or at >= self.since - CLOCKS_DIFFER_S


class JobRecords:
    """The newest status call by job name, what accounting added, and pending cancellations.

    Attributes:
        queried_at: start of the newest answered status call (`steady_time`); None: no call was
            answered.
    """

    def __init__(self, *, settle_s: float, accounting_limit_s: float) -> None:
        self.queried_at: float | None = None
        self._settle_s = settle_s
        self._accounting_limit_s = accounting_limit_s
        self._records: dict[str, _Record] = {}
        self._jobs: Mapping[str, tuple[SlurmJob, ...]] = {}
        self._signalled: dict[str, float] = {}

    def add(self, name: str, submitted: SubmitStatus, *, since: float) -> None:
        """Track this name; a tracked name is noted as submitted once more."""
        record = _Record(submitted=submitted, since=since)
        if earlier := self._records.get(name):
            record.since, record.ids = earlier.since, earlier.ids
            record.cancelled_at = earlier.cancelled_at
        self._records[name] = record

    def recognise(self, name: str, job_id: str) -> None:
        if record := self._records.get(name):
            record.ids.add(job_id)

    def ours(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        return [job for job in jobs if (r := self._records.get(job.name)) and r.owns(job)]

    def remove(self, name: str) -> None:
        """Drop the record, once its cancellation is complete."""
        if record := self._records.get(name):
            record.followed, record.look_up = False, None
            if record.cancelled_at is None:
                del self._records[name]

    def submit_status(self, name: str) -> SubmitStatus:
        return self._records[name].submitted

    def note_submitted(self, name: str, submitted: SubmitStatus) -> None:
        """Record the result of a submission; earlier observations of the name no longer count."""
        if record := self._records.get(name):
            record.submitted, record.absent_since, record.looked_up_at = submitted, None, None
            if submitted.job_id:
                record.ids.add(submitted.job_id)

    def status(self, name: str, *, now: float, accounting: bool) -> JobStatus:
        """Return the status of a name. `accounting`: whether this cluster has accounting."""
        record = self._records[name]
        jobs = {job.id: job for job in self.ours(self._jobs.get(name, ()))}
        for job in record.ended_jobs:
            if job.id not in jobs or jobs[job.id].finished:
                jobs[job.id] = job
        return JobStatus(
            now=now,
            jobs=tuple(jobs.values()),
            queried_at=self.queried_at,
            absent_since=record.absent_since,
            accounted=record.looked_up_at is not None,
            accounting=accounting,
            failed_nodes=self.failed_nodes(name),
            settle_s=self._settle_s,
            accounting_limit_s=self._accounting_limit_s,
        )

    def failed_nodes(self, name: str) -> frozenset[str]:
        return self._records[name].failed_nodes or frozenset()

    def take_in(self, jobs: Iterable[SlurmJob], *, queried_at: float) -> None:
        """Record the jobs of a status call that began at `queried_at`."""
        self._jobs, self.queried_at = by_name(jobs), queried_at
        for name, record in self._records.items():
            if any(not job.finished for job in self.ours(self._jobs.get(name, ()))):
                record.absent_since, record.looked_up_at = None, None
            elif record.absent_since is None and record.submitted.is_before(queried_at):
                record.absent_since = queried_at

    def node_failures(self, jobs: Iterable[SlurmJob]) -> dict[str, str]:
        """Return by name the nodes of jobs that ended by a node failure, until the failed node is
        known."""
        return {
            job.name: job.nodes
            for job in self.ours(jobs)
            if job.state == "NODE_FAIL" and self._records[job.name].failed_nodes is None
        }

    def note_failed_nodes(self, name: str, nodes: frozenset[str]) -> None:
        if record := self._records.get(name):
            record.failed_nodes = nodes

    # Queries to accounting.

    def ask_about(self, name: str, look_up: LookUp, *, unless_since: float) -> bool:
        """Schedule a query, unless one is scheduled or was answered after `unless_since`
        (`steady_time`); return whether it was scheduled."""
        record = self._records.get(name)
        if record is None or record.look_up or (record.looked_up_at or 0.0) > unless_since:
            return False
        record.look_up = look_up
        return True

    def look_ups(self) -> dict[str, LookUp]:
        return {name: each.look_up for name, each in self._records.items() if each.look_up}

    def take_in_accounting(
        self, names: Iterable[str], jobs: Iterable[SlurmJob], *, now: float
    ) -> None:
        """Record accounting's data for these names.

        Only ended jobs count: a job that a rolled-back controller has forgotten stays "running" in
        accounting forever.
        """
        known = by_name(self.ours(jobs))
        for name in self._records.keys() & set(names):
            record = self._records[name]
            record.ended_jobs = [job for job in known.get(name, ()) if job.finished]
            record.looked_up_at, record.look_up = now, None

    # Cancellation.

    @property
    def cancels(self) -> bool:
        return any(record.cancelled_at is not None for record in self._records.values())

    def cancel(self, name: str, *, at: float) -> bool:
        """Cancel every job of the name; return whether it was not cancelled before. If the name is
        not tracked, all its jobs count as ours."""
        if name not in self._records:
            tried = SubmitStatus(state=SubmitState.TRIED, at=at)
            self._records[name] = _Record(submitted=tried, since=0.0, followed=False)
        record = self._records[name]
        if record.cancelled_at is not None:
            return False
        record.cancelled_at = at
        return True

    def to_cancel(self, jobs: Iterable[SlurmJob], *, now: float) -> list[str]:
        """Return the ids to cancel now, and drop cancellations of names that can have no job any
        more.

        Args:
            jobs: of the newest status call. An older id may belong to another job by now.
        """
        living = [
            job
            for job in self.ours(jobs)
            if self._records[job.name].cancelled_at is not None and not job.completing
        ]
        named = {job.name for job in living}
        for name, record in list(self._records.items()):
            if record.cancelled_at is None or name in named or self._unsettled(record, now=now):
                continue
            if now - record.cancelled_at > self._settle_s:
                record.cancelled_at = None
                if not record.followed:
                    del self._records[name]
        return [job.id for job in living if now - self._signalled.get(job.id, 0.0) > CANCEL_AGAIN_S]

    def note_signalled(self, job_ids: Iterable[str], *, now: float) -> None:
        """Record that scancel was called for these jobs."""
        recent = {
            job_id: at for job_id, at in self._signalled.items() if now - at <= CANCEL_AGAIN_S
        }
        self._signalled = recent | dict.fromkeys(job_ids, now)

    def _unsettled(self, record: _Record, *, now: float) -> bool:
        submitted = record.submitted
        return submitted.state is SubmitState.UNDER_WAY or now - submitted.at < self._settle_s


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, tuple[SlurmJob, ...]]:
    """Group jobs by name; several may share one."""
    named: dict[str, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        named[job.name] = (*named.get(job.name, ()), job)
    return named
