"""The allocation that trials of pilot mode run in: the interface, and the user's own allocation."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol, Self

from autotune.schemas import TrialState
from evaluators.slurm.commands import Slurm, SlurmError
from evaluators.slurm.job_decision import NODE_FAILED, JobStatus
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.step_decision import NO_LOSS, NodeLoss

ALLOCATION_ENDED = NodeLoss(status=TrialState.LOST, reason="its allocation has ended")


@dataclass(frozen=True, kw_only=True)
class RunningAllocation:
    """An allocation that has its nodes.

    Attributes:
        nodes: those that are up, neighbours next to each other.
        ends_at: epoch of its time limit; None if it has none.
        asked_at: start of the status call that showed it (`steady_time`).
    """

    job_id: str
    nodes: tuple[str, ...]
    ends_at: float | None
    asked_at: float

    def loss_of(self, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """Return what became of these nodes: those that it no longer has have failed.

        None: unknown as of `since` (epoch).
        """
        if self.asked_at <= since:
            return None
        failed = frozenset(nodes) - set(self.nodes)
        if not failed:
            return NO_LOSS
        return NodeLoss(status=TrialState.NODE_FAIL, reason=NODE_FAILED, failed_nodes=failed)


@dataclass(frozen=True, kw_only=True)
class AllocationRequest:
    """Size and duration of a wanted allocation."""

    nodes: int
    gpus_per_node: int
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoAllocation:
    """No allocation can be had, and why: every waiting trial ends with this reason."""

    status: TrialState
    error: str


class Allocation(Protocol):
    """At most one allocation at a time. Not thread-safe.

    Attributes:
        replaceable: whether another one can be requested if this one is unsuitable.
        running: None unless it runs.
        waiting: why there is none, in a sentence for the user.
    """

    replaceable: bool
    running: RunningAllocation | None
    waiting: str

    def advance(self, wanted: AllocationRequest | None) -> NoAllocation | None:
        """Process Slurm's report, and request an allocation if one is wanted."""

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """Return what became of these nodes of that job; None: unknown as of `since` (epoch)."""

    def keep(self, needed_s: float) -> None:
        """Hold it for this many seconds from now, in case this process ends."""

    def release(self) -> None:
        """Release it: nothing runs in it, and nothing will."""

    def leave(self) -> None:
        """Release it for good: this process needs neither it nor another one."""

    def close(self) -> None:
        """Detach: a later process finds it again."""


class Hostnames:
    """Expands `n[01-03]`, each expression once."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, expression: str) -> tuple[str, ...]:
        """Return the nodes of the expression; empty if Slurm does not answer."""
        if expression not in self._known:
            try:
                self._known[expression] = tuple(self._slurm.nodes(expression))
            except SlurmError:
                return ()
        return self._known[expression]

    def running(self, job_id: str | None, status: JobStatus) -> RunningAllocation | None:
        """Return what the job of this id offers; None unless it runs."""
        job = next((job for job in status.jobs if job.id == job_id), None)
        if job is None or job.state != "RUNNING" or status.asked_at is None:
            return None
        nodes = self.of(job.nodes) if job.nodes else ()
        if not nodes:
            return None
        return RunningAllocation(
            job_id=job.id, nodes=nodes, ends_at=job.ended_at, asked_at=status.asked_at
        )


class UserAllocation:
    """The allocation that this process was started in: never requested, never released."""

    replaceable = False

    def __init__(self, job_id: str, job_name: str, tracker: JobTracker) -> None:
        self.running: RunningAllocation | None = None
        self.waiting = f"looking at the allocation that autotune was started in ({job_id})"
        self._job_id, self._job_name = job_id, job_name
        self._tracker = tracker
        self._hostnames = Hostnames(tracker.slurm)
        self._ended = False
        tracker.follow(job_name, submitted_at=0.0)

    @classmethod
    def here(cls, tracker: JobTracker) -> Self | None:
        """Return the allocation that this process was started in; None if there is none."""
        job_id, name = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NAME", "")
        return cls(job_id, name, tracker) if job_id and name else None

    def advance(self, wanted: AllocationRequest | None) -> NoAllocation | None:
        """Process Slurm's report."""
        status = self._tracker.status(self._job_name)
        if status.asked_at is None:
            return None
        jobs = [job for job in status.jobs if job.id == self._job_id]
        if jobs:
            self.running = self._hostnames.running(self._job_id, status)
        self._ended = all(job.finished for job in jobs)
        if self._ended and wanted:
            error = "the allocation that autotune was started in has ended"
            return NoAllocation(status=TrialState.REFUSED, error=error)
        return None

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """Return what became of these nodes; those of an earlier allocation are gone with it."""
        if job_id != self._job_id or self._ended:
            return ALLOCATION_ENDED
        return self.running.loss_of(nodes, since=since) if self.running else None

    def keep(self, needed_s: float) -> None:
        """Do nothing: it ends when the user ends it."""

    def release(self) -> None:
        """Do nothing: it ends when the user ends it."""

    def leave(self) -> None:
        """Do nothing: it ends when the user ends it."""

    def close(self) -> None:
        """Do nothing: it ends when the user ends it."""
