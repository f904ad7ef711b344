"""Claims campaigns for a runner: its share of those that no other runner holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from server.runner.figures import counted
from server.settings import Settings
from server.store import Store
from server.store.events import newest_events
from server.store.leases import (
    Lease,
    any_claimable,
    claim,
    free_the_gone,
    gone_owners,
    held_ids,
    this_owner,
)
from server.store.runners import RunnerOffer, forget_runner, living_runners, note_runner
from server.store.sharing import open_campaigns, portions
from server.store.waiting import forget_waiting


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Leases, and the last event of each of their campaigns."""

    leases: list[Lease]
    newest: Mapping[int, int]


class Claims:
    """Records a runner's heartbeat, and claims campaigns for it.

    Campaigns are shared evenly among the runners that may work on them.
    """

    def __init__(self, settings: Settings, store: Store) -> None:
        self.owner = this_owner()
        self._settings = settings
        self._store = store
        self._started_at = datetime.now(UTC)
        user = settings.runner_user or None
        self._offer = RunnerOffer(evaluators=settings.evaluators, user=user)
        self._noted_full: bool | None = None

    def note(self, *, held: int) -> None:
        """Record that this runner is alive, and its number of campaigns."""
        self._noted_full = self._is_full(held)
        with self._store.transaction() as session:
            note_runner(
                session,
                self.owner,
                version=version("autotune"),
                started_at=self._started_at,
                offer=self._offer,
                full=self._noted_full,
                figures=counted(),
            )

    def forget(self) -> None:
        """Record that this runner has stopped."""
        with self._store.transaction() as session:
            forget_runner(session, self.owner)

    def take(self, *, held: int) -> Claimed:
        """Claim free campaigns up to this runner's share, of which it already has this many."""
        if self._is_full(held) != self._noted_full:
            self.note(held=held)
        leases: list[Lease] = []
        with self._store.session() as session:
            among = self._offer.condition()
            if not (gone_owners(session) or any_claimable(session, among=among)):
                return Claimed(leases=leases, newest={})
        with self._store.transaction() as session:
            free_the_gone(session)
            runners = living_runners(session, silent_s=self._settings.lease_s)
            parts = portions(open_campaigns(session), runners, me=self.owner)
            wanted = [(part.more, part.condition()) for part in parts if part.more > 0]
            # A resting campaign whose trials still have to end belongs to no share, and is little
            # work.
            wanted.append((self._settings.most_campaigns, self._offer.resting()))
            for most, among in wanted:
                room = self._settings.most_campaigns - held - len(leases)
                leases += claim(
                    session,
                    self.owner,
                    seconds=self._settings.lease_s,
                    limit=min(most, room),
                    among=among,
                )
            ids = [lease.campaign_id for lease in leases]
            newest = newest_events(session, ids) if ids else {}
            if ids:
                forget_waiting(session, ids)
        return Claimed(leases=leases, newest=newest)

    def beyond(self) -> list[tuple[int, list[int]]]:
        """Return numbers of campaigns above this runner's shares, each with the campaigns to choose
        from."""
        with self._store.session() as session:
            runners = living_runners(session, silent_s=self._settings.lease_s)
            if len(runners) < 2:
                return []
            parts = portions(open_campaigns(session), runners, me=self.owner)
            return [
                (-part.more, held_ids(session, self.owner, among=part.condition()))
                for part in parts
                if part.more < 0
            ]

    def _is_full(self, held: int) -> bool:
        return held >= self._settings.most_campaigns
