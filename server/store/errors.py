"""Exceptions of the store.

StoreError
├── NotFound          no such row
├── Conflict          the row's state does not allow it
├── NotAllowed        the caller may not do that
├── LeaseLost         another runner holds the campaign now
├── InUse             another process serves this database
├── UnknownSchema     a later version wrote this database, or one too old to be upgraded
└── DatabaseReplaced  the database is not the one that this process opened

`cause`, `is_damaged` and `is_full_disk` classify what the database itself raises.
"""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

from autotune.files import OUT_OF_ROOM


class StoreError(Exception):
    """The root."""


class NotFound(StoreError):
    """There is no such row.

    Attributes:
        field: kind of the resource, such as `campaign`.
    """

    def __init__(self, field: str, value: object, *, reason: str = "") -> None:
        self.field = field
        self.value = value
        self.valid = ""
        self.reason = reason or f"there is no {field} {value}"
        super().__init__(self.reason)


class Conflict(StoreError):
    """The row's state does not allow it; `field` and `value` say which."""

    def __init__(self, field: str, value: object, reason: str, *, valid: str = "") -> None:
        self.field = field
        self.value = value
        self.reason = reason
        self.valid = valid
        super().__init__(reason)


class NotAllowed(StoreError):
    """The caller may not do that; the message says why."""


class LeaseLost(StoreError):
    """The campaign was claimed by another runner, or deleted."""


class InUse(StoreError):
    """Another process already does this work on this database."""


class UnknownSchema(StoreError):
    """This version has no migration from the database's schema to its own."""


class DatabaseReplaced(StoreError):
    """The database was deleted, or replaced by another, since this process opened it."""


DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def cause(error: BaseException) -> str:
    return str(error.orig if isinstance(error, DBAPIError) else error).strip()


def is_damaged(error: BaseException) -> bool:
    found = error.orig if isinstance(error, DBAPIError) else error
    code: int = getattr(found, "sqlite_errorcode", 0) & 0xFF  # without its extension
    return code in DAMAGED


def is_full_disk(error: BaseException) -> bool:
    """Return whether the disk of the database or of this host is full."""
    if isinstance(error, OSError):
        return error.errno in OUT_OF_ROOM
    if not isinstance(error, DBAPIError):
        return False
    return (
        "database or disk is full" in str(error.orig)
        or getattr(error.orig, "sqlstate", None) == "53100"
    )
