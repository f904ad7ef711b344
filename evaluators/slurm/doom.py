"""Names whose jobs are to be ended, for as long as one may still turn up. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from evaluators.slurm.job import Job
from evaluators.slurm.judgement import SETTLE_S
from evaluators.slurm.watchlist import is_since

AGAIN_S = 10.0
"""A job that does not end is told so again."""


@dataclass(frozen=True, kw_only=True)
class _Name:
    """Since when it is doomed, and from which time of submission on its jobs are ours."""

    at: float
    since: float


@dataclass(kw_only=True)
class Doomed:
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
        self, jobs: Sequence[Job], *, ours: Iterable[Job], unsettled: Collection[str], now: float
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

    def _is_doomed(self, job: Job, known: Collection[str]) -> bool:
        doom = self._names.get(job.name)
        return doom is not None and (job.id in known or is_since(job, doom.since))


def _can_be_ended(job: Job) -> bool:
    return not job.finished and job.state != "COMPLETING"
