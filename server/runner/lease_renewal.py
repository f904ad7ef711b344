"""Renew the leases of a runner in time, however long its steps take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy.exc import DBAPIError

from server.runner.claims import Claims
from server.runner.figures import LEASE_RENEWALS
from server.store import DatabaseReplaced, Store
from server.store.leases import Lease, renew_all

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
