"""Keep the reasons of waiting campaigns up to date while a service runs, also if no runner does."""

from __future__ import annotations

import threading

import structlog
from sqlalchemy.exc import SQLAlchemyError

from server.store import DatabaseReplaced, Store
from server.store.failures import cause
from server.store.waiting import note_waiting

EVERY_S = 2.0
"""Longer than a runner needs to claim a campaign: what is claimed at once never waited."""
log = structlog.get_logger(__name__)


class WaitingNotes:
    """A thread that updates the reasons from `start` to `stop`.

    Args:
        silent_s: seconds without a heartbeat after which a runner counts as stopped.
    """

    def __init__(self, store: Store, *, silent_s: float) -> None:
        self._store = store
        self._silent_s = silent_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._look, name="waiting-notes", daemon=True)

    def start(self) -> None:
        """Begin to look, after a while."""
        self._thread.start()

    def stop(self) -> None:
        """Stop; wait for an update in progress."""
        self._stopping.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._stopping.wait(EVERY_S):
            try:
                note_waiting(self._store, silent_s=self._silent_s)
            except (SQLAlchemyError, DatabaseReplaced) as error:
                log.warning("waiting_not_noted", error=cause(error))
