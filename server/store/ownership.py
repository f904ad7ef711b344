"""One service for each database: a second one is refused while the first lives."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from server.data_folder import closed_file
from server.store.advisory_lock import AdvisoryLock
from server.store.errors import InUse
from server.store.store import Store

Role = Literal["serve", "runner"]
NAMES: dict[Role, str] = {"serve": "autotune serve", "runner": "a runner"}
PATIENCE_S = 2.0
"""PostgreSQL notices a little late that a killed holder has gone."""
LOCKS: dict[Role, int] = {"serve": 0x73657276, "runner": 0x72756E6E}


@contextmanager
def ownership(store: Store, role: Role, *, patience_s: float = PATIENCE_S) -> Iterator[None]:
    """Hold a role on this database while the block runs; it ends with this process, too.

    On SQLite there is one `serve` and one runner for each file; on PostgreSQL one `serve`, and as
    many runners as one likes: leases divide the campaigns between them.

    Args:
        patience_s: how long another `serve` on PostgreSQL may take to be gone.

    Raises:
        InUse: another process holds it.
    """
    if store.dialect == "sqlite":
        with _file_lock(store, role):
            yield
    elif role == "serve":
        with _advisory_lock(store, role, patience_s=patience_s):
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
def _advisory_lock(store: Store, role: Role, *, patience_s: float) -> Iterator[None]:
    lock, ends = AdvisoryLock(store.engine, LOCKS[role]), time.monotonic() + patience_s
    while not lock.take():
        if time.monotonic() > ends:
            shown = store.engine.url.render_as_string(hide_password=True)
            raise InUse(f"{NAMES[role]} already works on the database {shown}")
        time.sleep(patience_s / 40)
    lock.keep()
    try:
        yield
    finally:
        lock.release()
