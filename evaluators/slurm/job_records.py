"""The names of our jobs, what Slurm has said of each, and which are to be cancelled. Pure.

Nothing here is for several threads at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evaluators.slurm.job_decision import JobStatus
from evaluators.slurm.jobs import SlurmJob
from evaluators.slurm.submit_queue import SubmitState, SubmitStatus

CLOCKS_DIFFER_S = 2.0
"""The controller's clock counts whole seconds, and is not quite ours."""
CANCEL_AGAIN_S = 10.0
"""After so long a job that does not end is cancelled once more."""


@dataclass(kw_only=True)
class _Record:
    """One name.

    Attributes:
        since: when it was first to be submitted (epoch): an older job is of something else.
        looked_up_at: when accounting was last asked since `absent_since` (`steady_time`).
        ids: of jobs that are ours whatever the clocks say.
    """

    submitted: SubmitStatus
    since: float
    ids: set[str] = field(default_factory=set)
    absent_since: float | None = None
    looked_up_at: float | None = None
    ended_jobs: list[SlurmJob] = field(default_factory=list)
    failed_nodes: frozenset[str] | None = None


class JobRecords:
    """What the newest status call showed, by name, and what was found out besides.

    Attributes:
        asked_at: when the newest answered status call began (`steady_time`); None: none was.
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
        """Track this name; one that is tracked already is only submitted once more."""
        earlier = self._records.get(name, _Record(submitted=submitted, since=since))
        self._records[name] = _Record(submitted=submitted, since=earlier.since, ids=earlier.ids)

    def recognise(self, name: str, job_id: str) -> None:
        """Count this job as ours, whatever the clocks say."""
        if name in self._records:
            self._records[name].ids.add(job_id)

    def since(self, name: str) -> float:
        """Return when it was first to be submitted (epoch); 0 where that is not known."""
        return self._records[name].since if name in self._records else 0.0

    def ours(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return those of the jobs that have a tracked name and are not older than it."""
        return [
            job
            for job in jobs
            if (record := self._records.get(job.name))
            and (job.id in record.ids or is_since(job, record.since))
        ]

    def unsettled(self, *, now: float) -> set[str]:
        """Return the names that were just submitted, or are being: their job may not show yet."""
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
        """Take in how its submission stands; what was seen of it before counts no more."""
        if record := self._records.get(name):
            record.submitted, record.absent_since, record.looked_up_at = submitted, None, None
            if submitted.job_id:
                record.ids.add(submitted.job_id)

    def status(self, name: str, *, now: float, accounting: bool) -> JobStatus:
        """Return what is known of a name; `accounting`: whether this cluster keeps any."""
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
        """Take in the jobs that a status call showed which began at `asked_at`."""
        self._jobs, self.asked_at = by_name(jobs), asked_at
        for name, record in self._records.items():
            if any(not job.finished for job in self.ours(self._jobs.get(name, ()))):
                record.absent_since, record.looked_up_at = None, None
            elif record.absent_since is None and record.submitted.is_before(asked_at):
                record.absent_since = asked_at

    def looked_up_since(self, name: str, at: float) -> bool:
        """Return whether accounting was asked about this name since then (`steady_time`)."""
        record = self._records.get(name)
        return bool(record and record.looked_up_at and record.looked_up_at > at)

    def take_in_accounting(
        self, names: Iterable[str], jobs: Iterable[SlurmJob], *, now: float
    ) -> None:
        """Take in what accounting knows of these names.

        Only of jobs that have ended: one that a rolled-back controller has forgotten runs on for
        ever in accounting.
        """
        known = by_name(self.ours(jobs))
        for name in self._records.keys() & set(names):
            ended = [job for job in known.get(name, ()) if job.finished]
            self._records[name].ended_jobs = ended
            self._records[name].looked_up_at = now

    def node_failures(self, jobs: Iterable[SlurmJob]) -> dict[str, str]:
        """Return by name the nodes of jobs that a node's failure ended, until it is known which."""
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
    """Since when a name is cancelled (`steady_time`), and from which time of submission on its jobs
    are ours (epoch)."""

    at: float
    since: float


@dataclass(kw_only=True)
class Cancellations:
    """Names whose jobs are to be ended, for as long as one may still turn up.

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
        """Return the ids that are to be ended now; names of which nothing can be left are dropped.

        Args:
            jobs: of the newest status call. An id of before may be another's by now.
            ours: those of them that are known to be ours, whatever the clocks say.
            unsettled: names that are being submitted, or were just now.
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
        """Remember that Slurm was asked to end these."""
        recent = {
            job_id: at for job_id, at in self._signalled.items() if now - at <= CANCEL_AGAIN_S
        }
        self._signalled = recent | dict.fromkeys(job_ids, now)


def is_since(job: SlurmJob, since: float) -> bool:
    """Whether it was submitted at that time or later."""
    return job.submitted_at is None or job.submitted_at >= since - CLOCKS_DIFFER_S


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, tuple[SlurmJob, ...]]:
    """Return the jobs by name: several may have the same."""
    named: dict[str, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        named[job.name] = (*named.get(job.name, ()), job)
    return named
