"""The names of our jobs, and what Slurm has said of each. Not for several threads at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from evaluators.slurm.job import Job
from evaluators.slurm.judgement import SETTLE_S, Sight

CLOCKS_DIFFER_S = 2.0
"""The controller's clock counts whole seconds, and is not quite ours."""


class Sending(Enum):
    """How far a submission has come."""

    QUEUED = "queued"
    UNDER_WAY = "under way"
    TRIED = "tried"  # and sbatch ended, whether it told an id or not
    REFUSED = "refused"
    FAILED = "failed"  # before sbatch was called


@dataclass(frozen=True, kw_only=True)
class Sent:
    """How a submission stands.

    Attributes:
        at: when it came so far (epoch).
        job_id: that sbatch told.
        error: of a submission that was refused or that failed, or that sbatch said nothing about.
    """

    sending: Sending
    at: float
    job_id: str | None = None
    error: Exception | None = None

    def is_before(self, asked_at: float) -> bool:
        """Whether a status call of that time would show its job."""
        return self.sending is Sending.TRIED and self.at < asked_at


@dataclass(kw_only=True)
class _Watched:
    """One name.

    Attributes:
        since: when it was first to be submitted: an older job is of something else.
        ids: of jobs that are ours whatever the clocks say.
    """

    sent: Sent
    since: float
    ids: set[str] = field(default_factory=set)
    quiet_since: float | None = None
    accounted: bool = False
    ended_jobs: list[Job] = field(default_factory=list)
    failed_nodes: frozenset[str] | None = None


class Watchlist:
    """What the newest status call showed, by name, and what was found out besides.

    Attributes:
        asked_at: when the newest answered status call began (epoch); None: none was.
    """

    def __init__(self) -> None:
        self.asked_at: float | None = None
        self._watched: dict[str, _Watched] = {}
        self._jobs: Mapping[str, tuple[Job, ...]] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._watched

    def add(self, name: str, sent: Sent, *, since: float) -> None:
        """Watch it; one that is watched already is only sent once more."""
        earlier = self._watched.get(name, _Watched(sent=sent, since=since))
        self._watched[name] = _Watched(sent=sent, since=earlier.since, ids=earlier.ids)

    def recognise(self, name: str, job_id: str) -> None:
        """This job is ours."""
        if name in self._watched:
            self._watched[name].ids.add(job_id)

    def since(self, name: str) -> float:
        """When it was first to be submitted (epoch); 0 where that is not known."""
        return self._watched[name].since if name in self._watched else 0.0

    def ours(self, jobs: Iterable[Job]) -> list[Job]:
        """Of jobs with any names, those of watched names that are not older than their names."""
        return [
            job
            for job in jobs
            if (watched := self._watched.get(job.name))
            and (job.id in watched.ids or is_since(job, watched.since))
        ]

    def unsettled(self, *, now: float) -> set[str]:
        """Names that are being sent, or were so shortly ago that their job may not show yet."""
        return {
            name
            for name, watched in self._watched.items()
            if watched.sent.sending is Sending.UNDER_WAY or now - watched.sent.at < SETTLE_S
        }

    def remove(self, name: str) -> None:
        self._watched.pop(name, None)

    def sent(self, name: str) -> Sent:
        return self._watched[name].sent

    def note_sent(self, name: str, sent: Sent) -> None:
        """What was seen of it before this says nothing about what comes now."""
        if watched := self._watched.get(name):
            watched.sent, watched.quiet_since, watched.accounted = sent, None, False
            if sent.job_id:
                watched.ids.add(sent.job_id)

    def sight(self, name: str, *, now: float, accounting: bool) -> Sight:
        """What is known of a name; `accounting`: whether this cluster keeps any."""
        watched = self._watched[name]
        jobs = {job.id: job for job in self.ours(self._jobs.get(name, ()))}
        for job in watched.ended_jobs:
            if job.id not in jobs or jobs[job.id].finished:
                jobs[job.id] = job
        return Sight(
            now=now,
            jobs=tuple(jobs.values()),
            asked_at=self.asked_at,
            quiet_since=watched.quiet_since,
            accounted=watched.accounted or not accounting,
        )

    def failed_nodes(self, name: str) -> frozenset[str]:
        return self._watched[name].failed_nodes or frozenset()

    def take_in(self, jobs: Iterable[Job], *, asked_at: float) -> None:
        """A status call that began at `asked_at` (epoch) showed these jobs."""
        self._jobs, self.asked_at = by_name(jobs), asked_at
        for name, watched in self._watched.items():
            if any(not job.finished for job in self.ours(self._jobs.get(name, ()))):
                watched.quiet_since, watched.accounted = None, False
            elif watched.quiet_since is None and watched.sent.is_before(asked_at):
                watched.quiet_since = asked_at

    def take_in_accounting(self, names: Iterable[str], jobs: Iterable[Job]) -> None:
        """What accounting knows of these names.

        Only of jobs that have ended: one that a rolled-back controller has forgotten runs on for
        ever in accounting.
        """
        known = by_name(self.ours(jobs))
        for name in self._watched.keys() & set(names):
            ended = [job for job in known.get(name, ()) if job.finished]
            self._watched[name].ended_jobs = ended
            self._watched[name].accounted = True

    def unblamed(self, jobs: Iterable[Job]) -> dict[str, str]:
        """By name: the nodes of each job that a node's failure ended, where none is blamed yet."""
        return {
            job.name: job.nodes
            for job in self.ours(jobs)
            if job.state == "NODE_FAIL" and self._watched[job.name].failed_nodes is None
        }

    def blame(self, name: str, nodes: frozenset[str]) -> None:
        if name in self._watched:
            self._watched[name].failed_nodes = nodes


def is_since(job: Job, since: float) -> bool:
    """Whether it was submitted at that time or later."""
    return job.submitted_at is None or job.submitted_at >= since - CLOCKS_DIFFER_S


def by_name(jobs: Iterable[Job]) -> dict[str, tuple[Job, ...]]:
    """Several jobs may have one name."""
    found: dict[str, tuple[Job, ...]] = {}
    for job in jobs:
        found[job.name] = (*found.get(job.name, ()), job)
    return found
