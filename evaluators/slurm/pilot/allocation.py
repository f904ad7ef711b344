"""What an allocation is to those who put trials into it."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self

from autotune.schemas import TrialState
from evaluators.slurm.commands import Slurm, SlurmError
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.jobs import SlurmJob


@dataclass(frozen=True, kw_only=True)
class RunningAllocation:
    """A running allocation.

    Attributes:
        nodes: those that are up, neighbours next to each other.
        ends_at: epoch of its time limit; None where it has none.
        asked_at: epoch of the status call that showed it.
    """

    job_id: str
    nodes: tuple[str, ...]
    ends_at: float | None
    asked_at: float


@dataclass(frozen=True, kw_only=True)
class Need:
    """An allocation that is wanted."""

    nodes: int
    gpus_per_node: int
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeLoss:
    """What became of nodes while a trial ran on them; `status` is None where nothing did."""

    status: TrialState | None = None
    reason: str = ""
    failed_nodes: frozenset[str] = frozenset()


NO_LOSS = NodeLoss()


@dataclass(frozen=True, kw_only=True)
class NoAllocation:
    """There will be no allocation, and why: every trial that waits for it ends so."""

    status: TrialState
    error: str


class Allocation(Protocol):
    """One at a time. Only one thread uses it.

    Attributes:
        held: whether another one can be had when this one does not do.
        room: None while there is none that runs.
        waiting: why there is none, in a sentence for the user.
    """

    held: bool
    room: RunningAllocation | None
    waiting: str

    def advance(self, need: Need | None) -> NoAllocation | None:
        """Take in what Slurm says, and see to it that there is one where one is needed."""

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """What became of these nodes of that job; None: not known yet as of `since` (epoch)."""

    def keep(self, until: float) -> None:
        """It is needed until then (epoch), should nobody be there to say more."""

    def release(self) -> None:
        """Give it back: nothing runs in it, and nothing will."""


class Hostnames:
    """Expands `n[01-03]`, each expression once."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, expression: str) -> tuple[str, ...]:
        """Empty where Slurm does not answer."""
        if expression not in self._known:
            try:
                self._known[expression] = tuple(self._slurm.nodes(expression))
            except SlurmError:
                return ()
        return self._known[expression]


def running_allocation(
    job: SlurmJob, hostnames: Hostnames, *, asked_at: float
) -> RunningAllocation | None:
    """What a job offers; None unless it runs."""
    nodes = hostnames.of(job.nodes) if job.state == "RUNNING" and job.nodes else ()
    if not nodes:
        return None
    return RunningAllocation(job_id=job.id, nodes=nodes, ends_at=job.ended_at, asked_at=asked_at)


def node_loss_in(
    room: RunningAllocation | None, nodes: Collection[str], *, since: float
) -> NodeLoss | None:
    """Of nodes in a running allocation: those that it no longer has have failed."""
    if room is None or room.asked_at <= since:
        return None
    lost = frozenset(nodes) - set(room.nodes)
    if not lost:
        return NO_LOSS
    return NodeLoss(status=TrialState.NODE_FAIL, reason="a node failed under it", failed_nodes=lost)


_GONE = "the allocation that autotune was started in is over"


class UserAllocation:
    """It belongs to the user: it is never asked for, and never given back."""

    held = False

    def __init__(self, job_id: str, job_name: str, tracker: JobTracker) -> None:
        self.room: RunningAllocation | None = None
        self.waiting = f"looking at the allocation that autotune was started in ({job_id})"
        self._job_id, self._job_name = job_id, job_name
        self._tracker = tracker
        self._hostnames = Hostnames(tracker.slurm)
        self._over = False
        tracker.follow(job_name, submitted_at=0.0)

    @classmethod
    def here(cls, tracker: JobTracker) -> Self | None:
        """None where this process was started in none."""
        job_id, name = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NAME", "")
        return cls(job_id, name, tracker) if job_id and name else None

    def advance(self, need: Need | None) -> NoAllocation | None:
        """Take in what Slurm says of it."""
        sight = self._tracker.status(self._job_name)
        mine = [job for job in sight.jobs if job.id == self._job_id]
        if mine and sight.asked_at is not None:
            self.room = running_allocation(mine[0], self._hostnames, asked_at=sight.asked_at)
        self._over = sight.asked_at is not None and all(job.finished for job in mine)
        if self._over and need:
            return NoAllocation(status=TrialState.REFUSED, error=_GONE)
        return None

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """A trial of an earlier allocation went with it."""
        if job_id != self._job_id or self._over:
            return NodeLoss(status=TrialState.LOST, reason="its allocation is over")
        return node_loss_in(self.room, nodes, since=since)

    def keep(self, until: float) -> None:
        """It ends when the user says so."""

    def release(self) -> None:
        """Likewise."""
