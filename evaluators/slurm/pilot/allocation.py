"""What an allocation is to those who put trials into it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from autotune.schemas import TrialState
from evaluators.slurm.commands import Slurm, SlurmError
from evaluators.slurm.job import Job


@dataclass(frozen=True, kw_only=True)
class Room:
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
class Fate:
    """What became of nodes while a trial ran on them; `status` is None where nothing did."""

    status: TrialState | None = None
    reason: str = ""
    failed_nodes: frozenset[str] = frozenset()


INTACT = Fate()


@dataclass(frozen=True, kw_only=True)
class NoRoom:
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
    room: Room | None
    waiting: str

    def advance(self, need: Need | None) -> NoRoom | None:
        """Take in what Slurm says, and see to it that there is one where one is needed."""

    def fate(self, job_id: str, nodes: Collection[str], *, since: float) -> Fate | None:
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


def room_of(job: Job, hostnames: Hostnames, *, asked_at: float) -> Room | None:
    """What a job offers; None unless it runs."""
    nodes = hostnames.of(job.nodes) if job.state == "RUNNING" and job.nodes else ()
    if not nodes:
        return None
    return Room(job_id=job.id, nodes=nodes, ends_at=job.ended_at, asked_at=asked_at)


def fate_in(room: Room | None, nodes: Collection[str], *, since: float) -> Fate | None:
    """Of nodes in a running allocation: those that it no longer has have failed."""
    if room is None or room.asked_at <= since:
        return None
    lost = frozenset(nodes) - set(room.nodes)
    if not lost:
        return INTACT
    return Fate(status=TrialState.NODE_FAIL, reason="a node failed under it", failed_nodes=lost)
