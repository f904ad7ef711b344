"""Backups: all rows of an SQLite or PostgreSQL database in one SQLite file."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, Table, select, text, update

from search_spaces.errors import InvalidInput
from server.store.engine import WRITING
from server.store.errors import UnknownSchema
from server.store.store import Store
from server.store.tables import Base, CampaignRow

BATCH_ROWS = 1000
NOT_COPIED = frozenset({"runners", "notices", "listings", "outcomes"})
"""Tables of running processes and unsent notices, and those that are computed from others."""
NO_BACKUP = "it is no backup of a database of autotune"
OF_BACKUP = "a file that `autotune backup` wrote"


def back_up(store: Store, file: Path) -> dict[str, int]:
    """Write a consistent snapshot of all rows into a new file, while others go on working; return
    the number of rows of each table.

    The file is created atomically, readable for this user only. It does not contain the folders of
    trials.

    Raises:
        InvalidInput: the file exists, or the schema is not this version's.
        OSError: the file cannot be written.
    """
    if file.exists():
        raise InvalidInput("file", str(file), "it is there already", valid="a new name")
    if fault := store.schema_fault():
        raise InvalidInput("database_url", store.shown, fault)
    with TemporaryDirectory(dir=file.parent, prefix=f".{file.name}.") as folder:
        written = Path(folder) / file.name
        with _opened(written) as target:
            target.upgrade()
            with _one_moment(store) as rows, _writing(target) as into:
                copied = _copy(rows, into)
        with closing(sqlite3.connect(written)) as connection:
            # One file, readable in folders where SQLite cannot write others beside it.
            connection.execute("PRAGMA journal_mode = DELETE")
        _to_disk(written)
        written.rename(file)
    return copied


def restore(store: Store, file: Path, *, replace: bool = False) -> dict[str, int]:
    """Replace all rows of a database by those of a backup, in one transaction; return the number
    of rows of each table.

    All campaigns are released, and no id is reused. A backup of an earlier version is upgraded
    first.

    Args:
        replace: allow a database with campaigns or calibrations, which are then lost.

    Raises:
        InvalidInput: the file is not a backup that this version can read, or the database is not
            empty.
        UnknownSchema: the database is of a later version, or too old to be upgraded.
        OSError: the file cannot be read.
    """
    with TemporaryDirectory(prefix="autotune-restore-") as folder:
        copy = Path(folder) / "backup.db"
        shutil.copyfile(file, copy)
        _check(copy, file)
        with _opened(copy) as source:
            if source.revision() is None:
                raise InvalidInput("file", str(file), NO_BACKUP, valid=OF_BACKUP)
            try:
                source.upgrade()
            except UnknownSchema:
                reason = f"{source.schema_fault()}; {source.remedy()}"
                raise InvalidInput("file", str(file), reason) from None
            store.upgrade()
            with _one_moment(source) as rows, _writing(store) as into:
                if not replace:
                    _demand_empty(into, store)
                for table in reversed(Base.metadata.sorted_tables):
                    into.execute(table.delete())
                copied = _copy(rows, into)
                into.execute(update(CampaignRow).values(lease_owner=None, lease_until=None))
    return copied


@contextmanager
def _opened(file: Path) -> Iterator[Store]:
    with closing(Store(f"sqlite:///{file}")) as store:
        yield store


@contextmanager
def _one_moment(store: Store) -> Iterator[Connection]:
    """Yield a connection whose reads see one snapshot."""
    with store.engine.connect() as connection:
        if store.dialect == "postgresql":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


@contextmanager
def _writing(store: Store) -> Iterator[Connection]:
    connecting = store.engine.connect().execution_options(**{WRITING: True})
    with connecting as connection, connection.begin():
        yield connection


def _copy(source: Connection, target: Connection) -> dict[str, int]:
    """Copy all tables, each after those that it refers to, and their last ids."""
    kept = [table for table in Base.metadata.sorted_tables if table.name not in NOT_COPIED]
    rows = {table.name: _copy_table(table, source, target) for table in kept}
    for table, last in _last_ids(source).items():
        _go_on_after(target, table, last)
    return rows


def _copy_table(table: Table, source: Connection, target: Connection) -> int:
    query = select(table).order_by(*table.primary_key)
    read = source.execute(query.execution_options(yield_per=BATCH_ROWS)).mappings()
    copied = 0
    for batch in read.partitions():
        target.execute(table.insert(), [dict(row) for row in batch])
        copied += len(batch)
    return copied


def _last_ids(connection: Connection) -> dict[str, int]:
    """Return the last id of each table with ids, including those of deleted rows."""
    if connection.dialect.name == "sqlite":
        found: Any = connection.execute(text("SELECT name, seq FROM sqlite_sequence"))
        return {name: last for name, last in found if name in Base.metadata.tables}
    last_id = text("SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'id')::regclass)")
    counted = [table.name for table in Base.metadata.sorted_tables if "id" in table.columns]
    last_ids = {name: connection.scalar(last_id, {"name": name}) for name in counted}
    return {name: last for name, last in last_ids.items() if last is not None}


def _go_on_after(connection: Connection, table: str, last: int) -> None:
    """Let the next row of a table have a higher id than `last` and all previous rows."""
    last = max(last, _last_ids(connection).get(table, 0))
    values = {"name": table, "last": last}
    if connection.dialect.name == "sqlite":
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        connection.execute(text("INSERT INTO sqlite_sequence VALUES (:name, :last)"), values)
    elif last > 0:
        connection.execute(
            text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"), values
        )


def _check(copy: Path, file: Path) -> None:
    """Raise InvalidInput unless the copy of `file` is an undamaged SQLite database."""
    if not copy.stat().st_size:
        raise InvalidInput("file", str(file), NO_BACKUP, valid=OF_BACKUP)
    try:
        with closing(sqlite3.connect(copy)) as connection:
            answer = connection.execute("PRAGMA quick_check").fetchone()[0]
    except sqlite3.DatabaseError:
        raise InvalidInput("file", str(file), NO_BACKUP, valid=OF_BACKUP) from None
    if answer != "ok":
        raise InvalidInput("file", str(file), "it is damaged", valid=OF_BACKUP)


def _demand_empty(connection: Connection, store: Store) -> None:
    for name in ("campaigns", "calibrations"):
        if connection.execute(select(Base.metadata.tables[name].c.id).limit(1)).first():
            reason = f"missing, as the database {store.shown} holds {name}, which would be lost"
            raise InvalidInput("replace", None, reason)


def _to_disk(file: Path) -> None:
    with file.open("rb") as written:
        os.fsync(written.fileno())
