"""Engines: one SQLAlchemy engine for each database, set up for what it is."""

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
from server.store.identity import hold_to_database, hold_to_file

PATIENCE_S = 15.0
"""How long a write waits while another process writes to an SQLite file."""
PAGES_KIB = 256
"""What an SQLite connection keeps of the file for itself. Of SQLite's own 2 MB a service has up to
thirty, of pages that the kernel keeps once for all."""
POOL_SIZE = 20
POOL_TIMEOUT_S = 10
"""How long a request waits for a connection while all are in use."""

APPLICATION_ID = 0x61757475
"""By which `file` and SQLite's own programs tell autotune's databases."""
WRITING = "writing"
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "lustre", "gpfs", "cifs", "smb3", "smbfs", "beegfs", "afs", "ceph"}
    | {"9p", "panfs", "orangefs", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "fuse.ceph"}
)
POOL: dict[str, Any] = {
    "pool_size": POOL_SIZE,
    "pool_timeout": POOL_TIMEOUT_S,
    "hide_parameters": True,
}
log = structlog.get_logger(__name__)


def parse_url(database_url: str) -> URL:
    """Parse a URL; raises InvalidInput for what is neither SQLite in a file nor PostgreSQL."""
    shown = database_url.partition("@")[0].rpartition(":")[0] or database_url
    valid = "sqlite:////path/to/autotune.db or postgresql+psycopg://user@host/name"
    try:
        url = make_url(database_url)
        dialect = url.get_dialect().name
    except (ArgumentError, NoSuchModuleError) as error:
        raise InvalidInput("database_url", shown, "not a database URL", valid=valid) from error
    in_memory = dialect == "sqlite" and url.database in {None, "", ":memory:"}
    if dialect not in {"sqlite", "postgresql"} or in_memory:
        reason = "the store is kept in an SQLite file or in PostgreSQL"
        raise InvalidInput("database_url", shown, reason, valid=valid)
    return url


def build_engine(database_url: str, *, patience_s: float = PATIENCE_S) -> Engine:
    """Return the engine of a database; raises InvalidInput for what `parse_url` refuses, and for an
    SQLite file that is empty."""
    url = parse_url(database_url)
    if url.get_dialect().name == "postgresql":
        engine = create_engine(url, pool_pre_ping=True, **POOL)
        hold_to_database(engine)
        return engine
    return _sqlite(url, patience_s)


def journal_mode(*, shared: bool) -> str:
    """Return SQLite's journal mode; a write-ahead log needs memory that all users share."""
    return "DELETE" if shared else "WAL"


def _set_journal_mode(connection: SqliteConnection, mode: str, patience_s: float) -> None:
    """Set the mode, which the file keeps. SQLite does not wait for the lock that this needs."""
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
    """Return the engine of an SQLite file, whose folder is made where there is none."""
    file = Path(str(url.database)).absolute()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not file.exists():
        _make(file)
    elif not file.stat().st_size:
        reason = "the file is empty: a database was lost or never written here"
        valid = "a new database, which is made where there is no file, or a backup"
        raise InvalidInput("database_url", str(file), reason, valid=valid)
    _close_to_others(file)
    url = url.set(database=str(file))
    engine = create_engine(url, **POOL)
    hold_to_file(engine, file)
    shared = is_shared(file.parent)
    if shared:
        log.warning("network_file_system", folder=str(file.parent), journal_mode="DELETE")
    journal = journal_mode(shared=shared)

    @event.listens_for(engine, "connect")
    def configure(connection: SqliteConnection, record: Any) -> None:  # noqa: ARG001
        # The driver's own implicit BEGIN is switched off: `begin` below says which kind is meant.
        connection.isolation_level = None
        connection.execute(busy_timeout(patience_s))
        _set_journal_mode(connection, journal, patience_s)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = {-PAGES_KIB}")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A reader that later wants to write fails at once in WAL mode, whatever the busy timeout:
        # whoever will write takes the write lock at the start, and waits for it there.
        writing = connection.get_execution_options().get(WRITING)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")

    return engine


def busy_timeout(patience_s: float) -> str:
    """Return the statement with which an SQLite connection waits so long for a lock."""
    return f"PRAGMA busy_timeout = {round(1000 * patience_s)}"


def _make(file: Path) -> None:
    """Make a database without tables, which is there as a whole or not at all: an empty file is one
    that was lost."""
    with suppress(OSError, DatabaseError), TemporaryDirectory(dir=file.parent) as folder:
        new = Path(folder) / file.name
        with closing(connect(new)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        with suppress(FileExistsError):  # another process was first
            os.link(new, file)
    # What keeps it from being made, SQLite says; a file system may have no links, too.


def _close_to_others(file: Path) -> None:
    """Let this user alone read and write the database; what SQLite puts beside it follows suit."""
    for part in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(OSError):
            part.chmod(0o600)


def file_system_of(folder: Path, mounts: dict[str, str]) -> str:
    """Return the type of `folder`'s file system; `mounts` gives each mount point's type."""
    path = folder.absolute()
    for parent in (path, *path.parents):
        if str(parent) in mounts:
            return mounts[str(parent)]
    return ""


def is_shared(folder: Path) -> bool:
    """Return whether several hosts may use the folder, where SQLite's write-ahead log fails."""
    mounts = {p.mountpoint: p.fstype for p in psutil.disk_partitions(all=True)}
    return file_system_of(folder.resolve(), mounts) in NETWORK_FILE_SYSTEMS
