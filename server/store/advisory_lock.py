"""A lock of PostgreSQL's that lasts as long as this process, whatever becomes of the server."""

from __future__ import annotations

import threading
from contextlib import suppress

import structlog
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from server.store.errors import DatabaseReplaced

CHECK_S = 2.0
"""So often it is asked whether the connection still stands."""
log = structlog.get_logger(__name__)


class AdvisoryLock:
    """A lock on a connection of its own, which ends with this process.

    A server that was restarted has forgotten it: then it is taken again.
    """

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="advisory-lock", daemon=True)

    def take(self) -> bool:
        """Return whether it is this process's now; another one may have it.

        Raises:
            DBAPIError: the database does not answer.
        """
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            if connection.scalar(select(func.pg_try_advisory_lock(self._number))):
                self._connection = connection
        finally:
            if self._connection is not connection:
                connection.close()
        return self._connection is connection

    def keep(self) -> None:
        """Take it again whenever it is lost, until `release`; call this once."""
        self._thread.start()

    def release(self) -> None:
        """Let others take it."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._connection:
            with suppress(DBAPIError):  # a server that was restarted has forgotten it
                self._connection.execute(select(func.pg_advisory_unlock(self._number)))
            self._connection.close()
            self._connection = None

    def _keep(self) -> None:
        said = False
        while not self._stopping.wait(CHECK_S):
            try:
                if self._is_held():
                    continue
                if self.take():
                    said = False
                    log.info("database_lock_taken_again")
                elif not said:
                    said = True
                    log.error("database_lock_taken_by_another")
            except DBAPIError:
                continue  # it does not answer, which requests say
            except DatabaseReplaced:
                return

    def _is_held(self) -> bool:
        """Return whether the connection stands, which has the lock for as long as it does."""
        if self._connection is None:
            return False
        try:
            self._connection.scalar(select(1))
        except DBAPIError:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
        return self._connection is not None
