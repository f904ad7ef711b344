"""The SQL statements that reach a store, counted by tests as bounds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event

from server.store import Store


@contextmanager
def statements_of(store: Store) -> Iterator[list[str]]:
    """The texts of all statements while the block runs, those that begin a transaction left out."""
    statements: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *_: Any) -> None:  # noqa: ARG001
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    event.listen(store.engine, "before_cursor_execute", record)
    try:
        yield statements
    finally:
        event.remove(store.engine, "before_cursor_execute", record)
