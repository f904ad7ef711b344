"""The names of our jobs, and what Slurm has said of each. Not for several threads at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from evaluators.slurm.job_decision import SETTLE_S, JobStatus
from evaluators.slurm.jobs import SlurmJob

CLOCKS_DIFFER_S = 2.0
"""The controller's clock counts whole seconds, and is not quite ours."""


class SubmitState(Enum):
    """How far a submission has come."""

    QUEUED = "queued"
    UNDER_WAY = "under way"
    TRIED = "tried"  # and sbatch ended, whether it told an id or not
    REFUSED = "refused"
    FAILED = "failed"  # before sbatch was called


@dataclass(frozen=True, kw_only=True)
class SubmitStatus:
    """How a submission stands.

    Attributes:
        at: when it came so far (epoch).
        job_id: that sbatch told.
        error: of a submission that was refused or that failed, or that sbatch said nothing about.
    """

    state: SubmitState
    at: float
    job_id: str | None = None
    error: Exception | None = None

    def is_before(self, asked_at: float) -> bool:
        """Whether a status call of that time would show its job."""
        return self.state is SubmitState.TRIED and self.at < asked_at


@dataclass(kw_only=True)
class _Record:
    """One name.

    Attributes:
        since: when it was first to be submitted: an older job is of something else.
        ids: of jobs that are ours whatever the clocks say.
    """

    sent: SubmitStatus
    since: float
    ids: set[str] = field(default_factory=set)
    absent_since: float | None = None
    accounted: bool = False
    ended_jobs: list[SlurmJob] = field(default_factory=list)
    failed_nodes: frozenset[str] | None = None


class JobRecords:
    """What the newest status call showed, by name, and what was found out besides.

    Attributes:
        asked_at: when the newest answered status call began (epoch); None: none was.
    """

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self._records: dict[str, _Record] = {}
        self._jobs: Mapping[str, tuple[SlurmJob, ...]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def add(self, name: str, sent: SubmitStatus, *, since: float) -> None:
        """Watch it; one that is watched already is only sent once more."""
        earlier = self._records.get(name, _Record(sent=sent, since=since))
        self._records[name] = _Record(sent=sent, since=earlier.since, ids=earlier.ids)

    def recognise(self, name: str, job_id: str) -> None:
        """This job is ours."""
        if name in self._records:
            self._records[name].ids.add(job_id)

    def since(self, name: str) -> float:
        """When it was first to be submitted (epoch); 0 where that is not known."""
        return self._records[name].since if name in self._records else 0.0

    def ours(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Of jobs with any names, those of watched names that are not older than their names."""
        return [
            job
            for job in jobs
            if (watched := self._records.get(job.name))
            and (job.id in watched.ids or is_since(job, watched.since))
        ]

    def unsettled(self, *, now: float) -> set[str]:
        """Names that are being sent, or were so shortly ago that their job may not show yet."""
        return {
            name
            for name, watched in self._records.items()
            if watched.sent.state is SubmitState.UNDER_WAY or now - watched.sent.at < SETTLE_S
        }

    def remove(self, name: str) -> None:
        self._records.pop(name, None)

    def submit_status(self, name: str) -> SubmitStatus:
        return self._records[name].sent

    def note_sent(self, name: str, sent: SubmitStatus) -> None:
        """What was seen of it before this says nothing about what comes now."""
        if watched := self._records.get(name):
            watched.sent, watched.absent_since, watched.accounted = sent, None, False
            if sent.job_id:
                watched.ids.add(sent.job_id)

    def status(self, name: str, *, now: float, accounting: bool) -> JobStatus:
        """What is known of a name; `accounting`: whether this cluster keeps any."""
        watched = self._records[name]
        jobs = {job.id: job for job in self.ours(self._jobs.get(name, ()))}
        for job in watched.ended_jobs:
            if job.id not in jobs or jobs[job.id].finished:
                jobs[job.id] = job
        return JobStatus(
            now=now,
            jobs=tuple(jobs.values()),
            asked_at=self.asked_at,
            absent_since=watched.absent_since,
            accounted=watched.accounted or not accounting,
        )

    def failed_nodes(self, name: str) -> frozenset[str]:
        return self._records[name].failed_nodes or frozenset()

    def take_in(self, jobs: Iterable[SlurmJob], *, asked_at: float) -> None:
        """A status call that began at `asked_at` (epoch) showed these jobs."""
        self._jobs, self.asked_at = by_name(jobs), asked_at
        for name, watched in self._records.items():
            if any(not job.finished for job in self.ours(self._jobs.get(name, ()))):
                watched.absent_since, watched.accounted = None, False
            elif watched.absent_since is None and watched.sent.is_before(asked_at):
                watched.absent_since = asked_at

    def take_in_accounting(self, names: Iterable[str], jobs: Iterable[SlurmJob]) -> None:
        """What accounting knows of these names.

        Only of jobs that have ended: one that a rolled-back controller has forgotten runs on for
        ever in accounting.
        """
        known = by_name(self.ours(jobs))
        for name in self._records.keys() & set(names):
            ended = [job for job in known.get(name, ()) if job.finished]
            self._records[name].ended_jobs = ended
            self._records[name].accounted = True

    def unblamed(self, jobs: Iterable[SlurmJob]) -> dict[str, str]:
        """By name: the nodes of each job that a node's failure ended, where none is blamed yet."""
        return {
            job.name: job.nodes
            for job in self.ours(jobs)
            if job.state == "NODE_FAIL" and self._records[job.name].failed_nodes is None
        }

    def blame(self, name: str, nodes: frozenset[str]) -> None:
        if name in self._records:
            self._records[name].failed_nodes = nodes


def is_since(job: SlurmJob, since: float) -> bool:
    """Whether it was submitted at that time or later."""
    return job.submitted_at is None or job.submitted_at >= since - CLOCKS_DIFFER_S


def by_name(jobs: Iterable[SlurmJob]) -> dict[str, tuple[SlurmJob, ...]]:
    """Several jobs may have one name."""
    found: dict[str, tuple[SlurmJob, ...]] = {}
    for job in jobs:
        found[job.name] = (*found.get(job.name, ()), job)
    return found


AGAIN_S = 10.0
"""A job that does not end is told so again."""


@dataclass(frozen=True, kw_only=True)
class _Name:
    """Since when it is doomed, and from which time of submission on its jobs are ours."""

    at: float
    since: float


@dataclass(kw_only=True)
class Cancellations:
    """All times are epochs by this machine's clock."""

    _names: dict[str, _Name] = field(default_factory=dict)
    _told: dict[str, float] = field(default_factory=dict)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: str, *, at: float, since: float) -> None:
        self._names[name] = _Name(at=at, since=since)

    def due(
        self,
        jobs: Sequence[SlurmJob],
        *,
        ours: Iterable[SlurmJob],
        unsettled: Collection[str],
        now: float,
    ) -> list[str]:
        """The ids that are to be ended now; names of which nothing can be left are dropped.

        Args:
            jobs: of the newest status call. An id of before may be another's by now.
            ours: those of them that are known to be ours, whatever the clocks say.
            unsettled: names that are being sent, or were just now.
        """
        known = {job.id for job in ours}
        living = [job for job in jobs if self._is_doomed(job, known) and _can_be_ended(job)]
        kept = {job.name for job in living} | set(unsettled)
        self._names = {
            name: doom
            for name, doom in self._names.items()
            if name in kept or now - doom.at <= SETTLE_S
        }
        return [job.id for job in living if now - self._told.get(job.id, 0.0) > AGAIN_S]

    def told(self, job_ids: Iterable[str], *, now: float) -> None:
        """Slurm was asked to end these."""
        recent = {job_id: at for job_id, at in self._told.items() if now - at <= AGAIN_S}
        self._told = recent | dict.fromkeys(job_ids, now)

    def _is_doomed(self, job: SlurmJob, known: Collection[str]) -> bool:
        doom = self._names.get(job.name)
        return doom is not None and (job.id in known or is_since(job, doom.since))


def _can_be_ended(job: SlurmJob) -> bool:
    return not job.finished and job.state != "COMPLETING"
