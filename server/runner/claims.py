"""Claims campaigns that no other runner holds, and renews their leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import and_, false
from sqlalchemy.exc import DBAPIError

from server.pace import Pace
from server.settings import Settings
from server.store import DatabaseReplaced, Store
from server.store.events import newest_events
from server.store.leases import (
    Lease,
    any_claimable,
    claim,
    free_the_gone,
    gone_owners,
    renew_all,
    this_owner,
)
from server.store.tables import CampaignRow
from server.store.waiting import forget_waiting


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """Leases, and the last event of each of their campaigns."""

    leases: list[Lease]
    newest: Mapping[int, int]


class Claims:
    """Claims free campaigns of a runner's evaluators and, if it has one, its user."""

    def __init__(self, settings: Settings, store: Store, pace: Pace) -> None:
        self.owner = this_owner()
        self._pace = pace
        self._store = store
        user = settings.runner_user
        theirs = CampaignRow.owner == user if user else CampaignRow.own_runner == false()
        self._among = and_(CampaignRow.evaluator.in_(settings.evaluators), theirs)

    def take(self, *, held: int) -> Claimed:
        """Claim as many free campaigns as there is room for next to those that the runner holds."""
        room = self._pace.most_campaigns - held
        if room <= 0:
            return Claimed(leases=[], newest={})
        with self._store.session() as session:
            if not (gone_owners(session) or any_claimable(session, among=self._among)):
                return Claimed(leases=[], newest={})
        with self._store.transaction() as session:
            free_the_gone(session)
            leases = claim(
                session,
                self.owner,
                seconds=self._pace.lease_s,
                limit=room,
                among=self._among,
            )
            ids = [lease.campaign_id for lease in leases]
            newest = newest_events(session, ids) if ids else {}
            if ids:
                forget_waiting(session, ids)
        return Claimed(leases=leases, newest=newest)


RENEWALS_PER_LEASE = 3
RETRY_S = 1.0
"""Seconds until a database that did not respond is retried, if that is sooner."""
STUCK_AFTER_S = 900.0
"""Duration of a round after which a runner counts as stuck and gives up its campaigns."""


class LeaseRenewal:
    """Renews leases: in the runner's rounds, and from `start` to `stop` also in a thread, as a step
    may take longer than a lease. Without the thread, busy machines would lose
    campaigns while computing the next trial.

    Args:
        held: returns the runner's leases; called from both threads.
        stuck_after_s: the thread renews nothing after this long without a round.
    """

    def __init__(
        self,
        store: Store,
        *,
        held: Callable[[], Sequence[Lease]],
        lease_s: float,
        stuck_after_s: float = STUCK_AFTER_S,
    ) -> None:
        self._store = store
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
        self._thread = threading.Thread(target=self._keep_up, name="lease-renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
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
            self._lost += [lease for lease in leases if lease.campaign_id not in renewed]
            self._due = time.monotonic() + self._interval_s
