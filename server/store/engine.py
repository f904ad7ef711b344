"""SQLAlchemy engines for SQLite and PostgreSQL.

An engine connects only to the database that it opened first. Rows written into a deleted file would
be lost, and what a process has cached of one database is wrong for another.
"""

from __future__ import annotations

import os
import time
from contextlib import closing, suppress
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from sqlite3 import DatabaseError, OperationalError, connect
from tempfile import TemporaryDirectory
from typing import Any

import psutil
import structlog
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from search_spaces.errors import InvalidInput
from server.store.errors import DatabaseReplaced

PATIENCE_S = 15.0
"""How long a write waits while another process writes to an SQLite file."""
PAGES_KIB = 256
"""Page cache of an SQLite connection. A service has up to thirty connections, and the kernel caches
the same pages once; SQLite's default is 2 MB each."""

APPLICATION_ID = 0x61757475
"""Identifies the files to `file` and to SQLite's tools."""
WRITING = "writing"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "beegfs", "afs", "ceph"}
    | {"9p", "panfs", "orangefs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph"}
)
POOL: dict[str, Any] = {"pool_size": 20, "pool_timeout": 10, "hide_parameters": True}
"""`pool_timeout`: seconds that a request waits for a connection while all are in use."""
DATABASE_OID = "SELECT oid FROM pg_database WHERE datname = current_database()"
"""PostgreSQL's number of a database; a later one of the same name has another."""
log = structlog.get_logger(__name__)


class OpenedDatabase:
    """The database that an engine opened first.

    Once it was missing, it stays replaced: file systems reuse the numbers of deleted files.
    """

    def __init__(self) -> None:
        self._first: object = None
        self._became = ""

    def demand(self, found: object) -> None:
        """Raise DatabaseReplaced unless `found` identifies the same database; None if there is
        none."""
        if self._first is None:
            self._first = found
        if not self._became and found != self._first:
            self._became = "was deleted" if found is None else "was replaced by another one"
        if self._became:
            raise DatabaseReplaced(
                f"the database {self._became} since this process opened it, and nothing is stored "
                "any more; put it back, then start the service and its runners again"
            )


def parse_url(database_url: str) -> URL:
    """Parse a URL; raises InvalidInput unless it names an SQLite file or PostgreSQL."""
    shown = database_url.partition("@")[0].rpartition(":")[0] or database_url
    valid = "sqlite:////path/to/autotune.db or postgresql+psycopg://user@host/name"
    try:
        url = make_url(database_url)
        dialect = url.get_dialect().name
    except (ArgumentError, NoSuchModuleError) as error:
        raise InvalidInput("database_url", shown, "not a database URL", valid=valid) from error
    in_memory = dialect == "sqlite" and url.database in {None, "", ":memory:"}
    if dialect not in {"sqlite", "postgresql"} or in_memory:
        reason = "the store is an SQLite file or a PostgreSQL database"
        raise InvalidInput("database_url", shown, reason, valid=valid)
    return url


def build_engine(database_url: str, *, patience_s: float = PATIENCE_S) -> Engine:
    """Return the engine of a database; raises InvalidInput as `parse_url` does, and for an SQLite
    file that is empty."""
    url = parse_url(database_url)
    if url.get_dialect().name == "sqlite":
        return _sqlite(url, patience_s)
    engine, opened = create_engine(url, pool_pre_ping=True, **POOL), OpenedDatabase()

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:  # noqa: ARG001
        with connection.cursor() as cursor:
            found = cursor.execute(DATABASE_OID).fetchone()[0]
        connection.rollback()
        opened.demand(found)

    return engine


def journal_mode(*, shared: bool) -> str:
    return "DELETE" if shared else "WAL"


def _set_journal_mode(connection: SqliteConnection, mode: str, patience_s: float) -> None:
    ends = time.monotonic() + patience_s
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0].upper() != mode:
                connection.execute(f"PRAGMA journal_mode = {mode}")
            return
        except OperationalError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.01)


def _sqlite(url: URL, patience_s: float) -> Engine:
    file = Path(str(url.database)).absolute()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not file.exists():
        _create(file)
    elif not file.stat().st_size:
        reason = "the file is empty: a database was lost or never written here"
        valid = "a new database, which is made where there is no file, or a backup"
        raise InvalidInput("database_url", str(file), reason, valid=valid)
    _close_to_others(file)
    url = url.set(database=str(file))
    engine, opened = create_engine(url, **POOL), OpenedDatabase()
    shared = is_shared(file.parent)
    if shared:
        log.warning("network_file_system", folder=str(file.parent), journal_mode="DELETE")
    journal = journal_mode(shared=shared)

    @event.listens_for(engine, "do_connect")
    @event.listens_for(engine, "checkout")
    def used(*_: Any) -> None:
        opened.demand(_number_of(file))

    @event.listens_for(engine, "connect")
    def configure(connection: SqliteConnection, record: Any) -> None:  # noqa: ARG001
        # No implicit BEGIN of the driver: `begin` below chooses the kind.
        connection.isolation_level = None
        connection.execute(busy_timeout(patience_s))
        _set_journal_mode(connection, journal, patience_s)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = {-PAGES_KIB}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # In WAL mode a read transaction that starts to write fails at once, whatever the busy
        # timeout: a writing one takes the write lock at its start, and waits for it there.
        writing = connection.get_execution_options().get(WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def busy_timeout(patience_s: float) -> str:
    return f"PRAGMA busy_timeout = {round(1000 * patience_s)}"


def _create(file: Path) -> None:
    with suppress(OSError, DatabaseError), TemporaryDirectory(dir=file.parent) as folder:
        new = Path(folder) / file.name
        with closing(connect(new)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        with suppress(FileExistsError):  # another process was first
            os.link(new, file)
    # If this failed, or the file system has no links, SQLite creates the file or says why not.


def _close_to_others(file: Path) -> None:
    for part in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(OSError):
            part.chmod(0o600)


def file_system_of(folder: Path, mounts: dict[str, str]) -> str:
    """Return the type of the file system of `folder`; `mounts` has the type of each mount point."""
    path = folder.absolute()
    for parent in (path, *path.parents):
        if str(parent) in mounts:
            return mounts[str(parent)]
    return ""


def is_shared(folder: Path) -> bool:
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    return file_system_of(folder.resolve(), mounts) in NETWORK_FILE_SYSTEMS


def _number_of(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
