"""When an allocation is asked for, and when it is given back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.slurm.ledger import excluded
from evaluators.slurm.pilot.allocation import Need, Room
from evaluators.slurm.pilot.endings import Endings, PilotSite
from evaluators.slurm.pilot.entry import Entry, Phase
from evaluators.slurm.pilot.fitness import longest_s, too_much, unfit
from evaluators.slurm.pilot.strangers import Strangers

INTERVAL_S = 0.1


class Tenancy:
    """There is one while there is work, another where it does not do, and none when idle."""

    def __init__(
        self,
        site: PilotSite,
        endings: Endings,
        strangers: Strangers,
        *,
        trials: Path,
        nodes: int | None,
    ) -> None:
        self._site = site
        self._allocation = site.allocation
        self._pilot = site.profile.pilot
        self._endings = endings
        self._strangers = strangers
        self._trials = trials
        self._nodes = nodes or 0
        self._excluded: tuple[str, ...] = ()
        self._advanced_at = float("-inf")
        self._busy_at = time.monotonic()

    def usable(self, room: Room) -> list[str]:
        """The nodes of the allocation that did not fail too often."""
        avoided = set(self._excluded)
        return [node for node in room.nodes if node not in avoided]

    def advance(self, entries: Sequence[Entry]) -> None:
        """See to the allocation; several times a second is enough."""
        now = time.monotonic()
        if now - self._advanced_at < INTERVAL_S:
            return
        self._advanced_at = now
        failures = self._site.profile.retries.node_failures
        self._excluded = excluded(self._trials, failures=failures)
        self._refuse(_waiting(entries))
        waiting = _waiting(entries)
        running = [entry for entry in entries if entry.holds_nodes or entry.phase is Phase.NEW]
        if waiting or running:
            self._busy_at = now
            self._site.controller.watch()
        self._ask(waiting)
        left_s = max((longest_s(entry.request) for entry in running), default=0.0)
        self._allocation.keep(time.time() + left_s + self._pilot.idle_release_s)
        if not running and self._is_to_go(waiting, now):
            self._allocation.release()

    def _ask(self, waiting: Sequence[Entry]) -> None:
        no_room = self._allocation.advance(self._need(waiting))
        for entry in waiting if no_room else ():
            assert no_room
            self._endings.settle(entry, no_room.status, no_room.error)

    def _need(self, waiting: Sequence[Entry]) -> Need | None:
        if not waiting:
            return None
        widest = max(entry.width for entry in waiting)
        return Need(
            nodes=self._pilot.nodes or max(self._nodes, widest),
            gpus_per_node=waiting[0].request.machine.gpus_per_node,
            exclude=self._excluded,
        )

    def _refuse(self, waiting: Sequence[Entry]) -> None:
        """Those that no allocation can ever hold."""
        room = self._allocation.room
        for entry in waiting:
            reason = ""
            if self._allocation.held:
                reason = too_much(entry.request, self._pilot)
            elif room:
                reason = unfit(entry.request, room, self.usable(room), now=time.time())
            if reason:
                self._endings.settle(entry, TrialState.REFUSED, reason)

    def _is_to_go(self, waiting: Sequence[Entry], now: float) -> bool:
        """Nothing of ours runs in it: has nobody needed it, or does it not do for any that wait?"""
        room = self._allocation.room
        if room and self._strangers.places(room.job_id):
            return False
        if not waiting:
            return now - self._busy_at > self._pilot.idle_release_s
        if room is None:
            return False
        usable, epoch = self.usable(room), time.time()
        return all(unfit(entry.request, room, usable, now=epoch) for entry in waiting)


def _waiting(entries: Sequence[Entry]) -> list[Entry]:
    return [entry for entry in entries if entry.phase is Phase.WAITING]
