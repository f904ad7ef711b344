"""Claims a runner's share of the campaigns that no other holds, and renews their leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from sqlalchemy.exc import DBAPIError

from server.runner.figures import LEASE_RENEWALS, counted
from server.settings import Settings
from server.store import DatabaseReplaced, Store
from server.store.events import newest_events
from server.store.leases import (
    Lease,
    any_claimable,
    claim,
    free_the_gone,
    gone_owners,
    held_ids,
    renew_all,
    this_owner,
)
from server.store.runners import (
    RunnerOffer,
    forget_runner,
    forget_waiting,
    living_runners,
    note_runner,
    open_campaigns,
    portions,
)


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


RENEWALS_PER_LEASE = 3
RETRY_S = 1.0
"""Seconds until a database that did not respond is retried, if that is sooner."""
STUCK_AFTER_S = 900.0
"""Duration of a round after which a runner counts as stuck and gives up its campaigns."""


class LeaseRenewal:
    """Renews leases and the runner's heartbeat: in its rounds, and from `start` to `stop` also in a
    thread, as a step may take longer than a lease. Without the thread, busy machines would lose
    campaigns while computing the next trial.

    Args:
        held: returns the runner's leases; called from both threads.
        stuck_after_s: the thread renews nothing after this long without a round.
    """

    def __init__(
        self,
        store: Store,
        claims: Claims,
        *,
        held: Callable[[], Sequence[Lease]],
        lease_s: float,
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> None:
        self._store = store
        self._claims = claims
        self._held = held
        self._interval_s = lease_s / RENEWALS_PER_LEASE
        self._stuck_after_s = stuck_after_s
        self._lock = threading.Lock()
        self._due = 0.0
        self._round_at = time.monotonic()
        self._lost: list[Lease] = []
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; call it once."""
        self._thread = threading.Thread(target=self._keep_up, name="lease-renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; wait for a renewal in progress."""
        self._stopping.set()
        if self._thread:
            self._thread.join()

    def in_round(self) -> list[Lease]:
        """Renew the leases that are due; return those lost to other runners since the last call.

        Raises:
            DBAPIError: the database does not respond; it is retried at the next opportunity.
            DatabaseReplaced: the database is a different one.
        """
        self._round_at = time.monotonic()
        self._renew_due()
        with self._lock:
            lost, self._lost = self._lost, []
        return lost

    def _keep_up(self) -> None:
        while not self._stopping.wait(max(0.0, self._due - time.monotonic())):
            if time.monotonic() - self._round_at > self._stuck_after_s:
                self._stopping.wait(self._interval_s)
                continue
            try:
                self._renew_due()
            except (DBAPIError, DatabaseReplaced):
                continue  # the next round fails alike, and reports it

    def _renew_due(self) -> None:
        with self._lock:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + min(RETRY_S, self._interval_s)
            leases = self._held()
            with self._store.transaction() as session:
                renewed = renew_all(session, leases)
            LEASE_RENEWALS.inc(len(renewed))
            self._lost += [lease for lease in leases if lease.campaign_id not in renewed]
            self._claims.note(held=len(leases))
            self._due = time.monotonic() + self._interval_s
