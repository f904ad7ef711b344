"""The cause of a database error, and whether the file is damaged or the disk full."""

from __future__ import annotations

import sqlite3

from sqlalchemy.exc import DBAPIError

from autotune.files import OUT_OF_ROOM

DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})


def cause(error: BaseException) -> str:
    """Return the message of the database or the system, without the SQL statement."""
    return str(error.orig if isinstance(error, DBAPIError) else error).strip()


def is_damaged(error: BaseException) -> bool:
    """Return whether a file is damaged or not an SQLite database."""
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
