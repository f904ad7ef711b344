"""Names of our jobs, the state that Slurm reported for each, and pending cancellations.

Nothing here is thread-safe. Observations are compared by a clock that nobody sets.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from evaluators.slurm.commands import SlurmJob
from evaluators.slurm.job_decision import JobStatus

_AHEAD_S = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the epoch at this process's start plus the monotonic seconds since."""
    return _AHEAD_S + time.monotonic()


def steady_time_of(epoch: float) -> float:
    """Return `steady_time` at an epoch of this machine's clock; now, if that lies in the future."""
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

    def is_before(self, asked_at: float) -> bool:
        """Return whether a status call that began at this time would show its job."""
        return self.state is SubmitState.TRIED and self.at < asked_at


@dataclass(kw_only=True)
class _Record:
    """State of one job name.

    Attributes:
        since: time of the first submission (epoch); older jobs of the name are not ours.
        looked_up_at: last accounting query since `absent_since` (`steady_time`).
        ids: ids of jobs that are ours whatever the clocks say.
    """

    submitted: SubmitStatus
    since: float
    ids: set[str] = field(default_factory=set)
    absent_since: float | None = None
    looked_up_at: float | None = None
    ended_jobs: list[SlurmJob] = field(default_factory=list)
    failed_nodes: frozenset[str] | None = None


class JobRecords:
    """The newest status call by job name, and what accounting added.

    Attributes:
        asked_at: start of the newest answered status call (`steady_time`); None: no call was
            answered.
    """

    def __init__(self, *, settle_s: float, accounting_limit_s: float) -> None:
        self.asked_at: float | None = None
        self._settle_s = settle_s
        self._accounting_limit_s = accounting_limit_s
        self._records: dict[str, _Record] = {}
        self._jobs: Mapping[str, tuple[SlurmJob, ...]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def add(self, name: str, submitted: SubmitStatus, *, since: float) -> None:
        """Track this name; a tracked name is noted as submitted once more."""
        earlier = self._records.get(name, _Record(submitted=submitted, since=since))
        self._records[name] = _Record(submitted=submitted, since=earlier.since, ids=earlier.ids)

    def recognise(self, name: str, job_id: str) -> None:
        """Count this job as ours, whatever the clocks say."""
        if name in self._records:
            self._records[name].ids.add(job_id)

    def since(self, name: str) -> float:
        """Return the time of the first submission (epoch); 0 if unknown."""
        return self._records[name].since if name in self._records else 0.0

    def ours(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return the jobs that have a tracked name and are not older than it."""
        return [
            job
            for job in jobs
            if (record := self._records.get(job.name))
            and (job.id in record.ids or is_since(job, record.since))
        ]

    def unsettled(self, *, now: float) -> set[str]:
        """Return the names whose submission is in progress or so recent that the job may not show
        yet."""
        return {
            name
            for name, record in self._records.items()
            if record.submitted.state is SubmitState.UNDER_WAY
            or now - record.submitted.at < self._settle_s
        }

    def remove(self, name: str) -> None:
        self._records.pop(name, None)

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
            asked_at=self.asked_at,
            absent_since=record.absent_since,
            accounted=record.looked_up_at is not None,
            accounting=accounting,
            failed_nodes=self.failed_nodes(name),
            settle_s=self._settle_s,
            accounting_limit_s=self._accounting_limit_s,
        )

    def failed_nodes(self, name: str) -> frozenset[str]:
        return self._records[name].failed_nodes or frozenset()

    def take_in(self, jobs: Iterable[SlurmJob], *, asked_at: float) -> None:
        """Record the jobs of a status call that began at `asked_at`."""
        self._jobs, self.asked_at = by_name(jobs), asked_at
        for name, record in self._records.items():
            if any(not job.finished for job in self.ours(self._jobs.get(name, ()))):
                record.absent_since, record.looked_up_at = None, None
            elif record.absent_since is None and record.submitted.is_before(asked_at):
                record.absent_since = asked_at

    def looked_up_since(self, name: str, at: float) -> bool:
        """Return whether accounting was queried for this name since then (`steady_time`)."""
        record = self._records.get(name)
        return bool(record and record.looked_up_at and record.looked_up_at > at)

    def take_in_accounting(
        self, names: Iterable[str], jobs: Iterable[SlurmJob], *, now: float
    ) -> None:
        """Record accounting's data for these names.

        Only ended jobs count: a job that a rolled-back controller has forgotten stays "running" in
        accounting forever.
        """
        known = by_name(self.ours(jobs))
        for name in self._records.keys() & set(names):
            ended = [job for job in known.get(name, ()) if job.finished]
            self._records[name].ended_jobs = ended
            self._records[name].looked_up_at = now

    def node_failures(self, jobs: Iterable[SlurmJob]) -> dict[str, str]:
        """Return by name the nodes of jobs that ended by a node failure, until the failed node is
        known."""
        return {
            job.name: job.nodes
            for job in self.ours(jobs)
            if job.state == "NODE_FAIL" and self._records[job.name].failed_nodes is None
        }

    def note_failed_nodes(self, name: str, nodes: frozenset[str]) -> None:
        if name in self._records:
            self._records[name].failed_nodes = nodes


@dataclass(frozen=True, kw_only=True)
class _Cancelled:
    """When a name was cancelled (`steady_time`), and from which submission time on its jobs are
    ours (epoch)."""

    at: float
    since: float


@dataclass(kw_only=True)
class Cancellations:
    """Names whose jobs must end, kept as long as a job of the name may still appear.

    `settle_s`: see `Polling`.
    """

    settle_s: float
    _names: dict[str, _Cancelled] = field(default_factory=dict)
    _signalled: dict[str, float] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, *, at: float, since: float) -> None:
        self._names[name] = _Cancelled(at=at, since=since)

    def due(
        self,
        jobs: Sequence[SlurmJob],
        *,
        ours: Iterable[SlurmJob],
        unsettled: Collection[str],
        now: float,
    ) -> list[str]:
        """Return the ids to cancel now, and drop names that cannot have a job any more.

        Args:
            jobs: of the newest status call. An older id may belong to another job by now.
            ours: the jobs among them that are known to be ours, whatever the clocks say.
            unsettled: names whose submission is in progress or very recent.
        """
        known = {job.id for job in ours}
        living = [
            job
            for job in jobs
            if (cancelled := self._names.get(job.name))
            and (job.id in known or is_since(job, cancelled.since))
            and not job.completing
        ]
        kept = {job.name for job in living} | set(unsettled)
        self._names = {
            name: cancelled
            for name, cancelled in self._names.items()
            if name in kept or now - cancelled.at <= self.settle_s
        }
        return [job.id for job in living if now - self._signalled.get(job.id, 0.0) > CANCEL_AGAIN_S]

    def note_signalled(self, job_ids: Iterable[str], *, now: float) -> None:
        """Record that Slurm was asked to end these jobs."""
        recent = {
            job_id: at for job_id, at in self._signalled.items() if now - at <= CANCEL_AGAIN_S
        }
        self._signalled = recent | dict.fromkeys(job_ids, now)


def is_since(job: SlurmJob, since: float) -> bool:
    """Return whether the job was submitted at that time or later."""
    return job.submitted_at is None or job.submitted_at >= since - CLOCKS_DIFFER_S


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, tuple[SlurmJob, ...]]:
    """Group jobs by name; several may share one."""
    named: dict[str, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        named[job.name] = (*named.get(job.name, ()), job)
    return named
