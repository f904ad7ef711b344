"""Which database an engine has opened: a later connection to another one, or none, is refused.

What was written into a file that has been deleted is lost, and what this process knows of one
database is wrong of another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from server.store.errors import DatabaseReplaced

DELETED = "was deleted"
ANOTHER = "was replaced by another one"
OID = "SELECT oid FROM pg_database WHERE datname = current_database()"
"""PostgreSQL's own number of a database, which no later one of the same name has."""


class OpenedDatabase:
    """What the first connection has found, and from then on whether it is there still.

    Once it is not, nothing is: a file system gives the numbers of deleted files to new ones.
    """

    def __init__(self) -> None:
        self._first: object = None
        self._became = ""

    def hold(self, found: object) -> None:
        """Compare what is found now, None where there is nothing; raises DatabaseReplaced."""
        if self._first is None:
            self._first = found
        if not self._became and found != self._first:
            self._became = DELETED if found is None else ANOTHER
        if self._became:
            raise DatabaseReplaced(
                f"the database {self._became} since this process opened it, and nothing is stored "
                "any more; put it back, then start the service and its runners again"
            )


def hold_to_file(engine: Engine, file: Path) -> None:
    """Look, before a connection is made and whenever one is used, whether it is to this file."""
    opened = OpenedDatabase()

    @event.listens_for(engine, "do_connect")
    def before(dialect: Any, record: Any, arguments: Any, options: Any) -> None:  # noqa: ARG001
        opened.hold(_number_of(file))

    @event.listens_for(engine, "checkout")
    def used(connection: Any, record: Any, proxy: Any) -> None:  # noqa: ARG001
        opened.hold(_number_of(file))


def hold_to_database(engine: Engine) -> None:
    """Look at each new connection to PostgreSQL, whose databases go only without any."""
    opened = OpenedDatabase()

    @event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:  # noqa: ARG001
        with connection.cursor() as cursor:
            found = cursor.execute(OID).fetchone()[0]
        connection.rollback()
        opened.hold(found)


def _number_of(file: Path) -> tuple[int, int] | None:
    """Return what tells a file from all others; None where there is none."""
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
