"""One service per database: a second one is refused while the first lives."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

import structlog
from sqlalchemy import Connection, Engine, func, select
from sqlalchemy.exc import DBAPIError

from server.data_folder import closed_file
from server.store.errors import DatabaseReplaced, InUse
from server.store.store import Store

Role = Literal["serve", "runner"]
NAMES: dict[Role, str] = {"serve": "autotune serve", "runner": "a runner"}
PATIENCE_S = 2.0
"""PostgreSQL releases the lock of a killed process with a delay."""
SERVE_LOCK = 0x73657276
CHECK_S = 2.0
"""Interval at which the connection that holds the lock is checked."""
log = structlog.get_logger(__name__)


@contextmanager
def ownership(store: Store, role: Role, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold a role on this database while the block runs, at most until this process ends.

    An SQLite file has one `serve` and one runner. A PostgreSQL database has one `serve` and any
    number of runners, which share the campaigns by leases.

    Args:
        patience_s: how long to wait for another `serve` on PostgreSQL to release its lock.

    Raises:
        InUse: another process holds it.
    """
    if store.dialect == "sqlite":
        with _file_lock(store, role):
            yield
    elif role == "serve":
        with _advisory_lock(store, patience_s=patience_s):
            yield
    else:
        yield


@contextmanager
def _file_lock(store: Store, role: Role) -> Iterator[None]:
    database = Path(str(store.engine.url.database))
    with closed_file(database.with_name(f"{database.name}.{role}.lock")) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InUse(f"{NAMES[role]} already works on the database {database}") from error
        yield


@contextmanager
def _advisory_lock(store: Store, *, patience_s: float) -> Iterator[None]:
    lock, ends = AdvisoryLock(store.engine, SERVE_LOCK), time.monotonic() + patience_s
    while not lock.take():
        if time.monotonic() > ends:
            raise InUse(f"{NAMES['serve']} already works on the database {store.shown}")
        time.sleep(patience_s / 40)
    lock.keep()
    try:
        yield
    finally:
        lock.release()


class AdvisoryLock:
    """A lock of PostgreSQL on a connection of its own, which ends with this process.

    A server that restarts forgets it; it is then taken again.
    """

    def __init__(self, engine: Engine, number: int) -> None:
        self._engine = engine
        self._number = number
        self._connection: Connection | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="advisory-lock", daemon=True)

    def take(self) -> bool:
        """Try to take the lock; return whether this process now holds it.

        Raises:
            DBAPIError: the database does not respond.
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
        self._thread.start()

    def release(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._connection:
            with suppress(DBAPIError):  # a server that restarted has forgotten it
                self._connection.execute(select(func.pg_advisory_unlock(self._number)))
            self._connection.close()
            self._connection = None

    def _keep(self) -> None:
        logged = False
        while not self._stopping.wait(CHECK_S):
            try:
                if self._is_held():
                    continue
                if self.take():
                    logged = False
                    log.info("database_lock_taken_again")
                elif not logged:
                    logged = True
                    log.error("database_lock_taken_by_another")
            except DBAPIError:
                continue  # it does not respond, which requests report
            except DatabaseReplaced:
                return

    def _is_held(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.scalar(select(1))
        except DBAPIError:
            self._connection.invalidate()
            self._connection.close()
            self._connection = None
        return self._connection is not None
