"""Check whether a campaign's owner may start another trial, once for all of an owner's
campaigns."""

from __future__ import annotations

import time

from server.store import Store
from server.store.users import room_of

KNOWN_FOR_S = 1.0


class OwnerLimits:
    """Caches the answer per owner for a second; inserting a trial checks exactly
    (`server.store.users.room_of`)."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, bool], tuple[float, str]] = {}

    def reason_to_wait(self, owner: str | None, *, simulated: bool) -> str:
        """Return why none of an owner's trials may start now; empty if one may."""
        if owner is None:
            return ""
        until, reason = self._known.get((owner, simulated), (0.0, ""))
        if time.monotonic() >= until:
            with self._store.session() as session:
                reason = room_of(session, owner, simulated=simulated).reason
            self._known[owner, simulated] = time.monotonic() + KNOWN_FOR_S, reason
        return reason
