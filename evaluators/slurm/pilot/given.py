"""The allocation that this process was started in."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Self

from autotune.schemas import TrialState
from evaluators.slurm.controller import Controller
from evaluators.slurm.pilot.allocation import Fate, Hostnames, Need, NoRoom, Room, fate_in, room_of

_GONE = "the allocation that autotune was started in is over"


class Given:
    """It belongs to the user: it is never asked for, and never given back."""

    held = False

    def __init__(self, job_id: str, job_name: str, controller: Controller) -> None:
        self.room: Room | None = None
        self.waiting = f"looking at the allocation that autotune was started in ({job_id})"
        self._job_id, self._job_name = job_id, job_name
        self._controller = controller
        self._hostnames = Hostnames(controller.slurm)
        self._over = False
        controller.follow(job_name, submitted_at=0.0)

    @classmethod
    def here(cls, controller: Controller) -> Self | None:
        """None where this process was started in none."""
        job_id, name = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NAME", "")
        return cls(job_id, name, controller) if job_id and name else None

    def advance(self, need: Need | None) -> NoRoom | None:
        """Take in what Slurm says of it."""
        sight = self._controller.sight(self._job_name)
        mine = [job for job in sight.jobs if job.id == self._job_id]
        if mine and sight.asked_at is not None:
            self.room = room_of(mine[0], self._hostnames, asked_at=sight.asked_at)
        self._over = sight.asked_at is not None and all(job.finished for job in mine)
        if self._over and need:
            return NoRoom(status=TrialState.REFUSED, error=_GONE)
        return None

    def fate(self, job_id: str, nodes: Collection[str], *, since: float) -> Fate | None:
        """A trial of an earlier allocation went with it."""
        if job_id != self._job_id or self._over:
            return Fate(status=TrialState.LOST, reason="its allocation is over")
        return fate_in(self.room, nodes, since=since)

    def keep(self, until: float) -> None:
        """It ends when the user says so."""

    def release(self) -> None:
        """Likewise."""
