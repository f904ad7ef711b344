"""The leases of one runner, renewed in time however long its steps take."""

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
"""Until a database that did not answer is asked again, where that is sooner."""
STUCK_AFTER_S = 900.0
"""A runner whose round takes so long hangs, and others are to have its campaigns."""


class LeaseRenewal:
    """Renews leases and says that the runner works: in its rounds, and from `start` to `stop` in
    a thread, too, for a step may take longer than a lease. On a busy machine each runner would
    otherwise lose a campaign while it works out the next trial, and the next one begin anew.

    Args:
        held: returns the leases that the runner has; called from both threads.
        stuck_after_s: without a round for so long, the thread renews nothing.
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
        """Let the thread renew, too; call it once."""
        self._thread = threading.Thread(target=self._keep_up, name="lease-renewal", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let the thread end; a renewal that has begun is waited for."""
        self._stopping.set()
        if self._thread:
            self._thread.join()

    def in_round(self) -> list[Lease]:
        """Renew what is due; return the leases that others have taken since this was last asked.

        Raises:
            DBAPIError: the database does not answer; it is asked again at the next opportunity.
            DatabaseReplaced: it is another one.
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
                continue  # the next round meets it as well, and says so

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
