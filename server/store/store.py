"""The store: sessions on one database, the events that they announce, and its migrations."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, ExceptionContext, column, event, func, inspect, select, table
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

from server.store.engine import PATIENCE_S, WRITING, build_engine, busy_timeout
from server.store.errors import UnknownSchema, cause, is_damaged
from server.store.tables import CampaignRow, EventRow, TrialRow

if TYPE_CHECKING:
    from alembic.config import Config


from typing import Literal

MIGRATIONS = Path(__file__).parent / "migrations"
UPGRADE_LOCK = 0x6D696772
INSTALL_LATER = "install that version"
FINISH_FIRST = (
    "finish its campaigns with the version that made it, and start this one on a new database"
)
VERSION = table("alembic_version", column("version_num"))
"""Alembic's table with the version of the schema."""


class Store:
    """All campaigns, trials and events of one database.

    Args:
        patience_s: how long a write waits while another process writes to an SQLite file; an
            upgrade of the schema waits for PATIENCE_S.

    Raises:
        InvalidInput: the URL names neither an SQLite file nor a PostgreSQL database, or a file that
            is empty.
    """

    def __init__(self, database_url: str, *, patience_s: float = PATIENCE_S) -> None:
        self.engine = build_engine(database_url, patience_s=patience_s)
        self._patience_s = patience_s
        self._damage = ""
        event.listen(self.engine, "handle_error", self._note_damage)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @property
    def shown(self) -> str:
        url = self.engine.url
        return str(url.database) if self.dialect == "sqlite" else url.render_as_string()

    @contextmanager
    def session(self) -> Iterator[Session]:
        with Session(self.engine) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a session for writing, committed at its end with the events announced in it."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            session.connection(execution_options={WRITING: True})
            yield session
            write_announced(session)

    def upgrade(self) -> None:
        """Migrate the schema to this version; several processes may do so at once.

        Raises:
            UnknownSchema: a later version wrote it, or one too old to be upgraded.
        """
        if remedy := self.remedy():
            raise UnknownSchema(f"{self.shown}: {self.schema_fault()}; {remedy}")
        if self.is_current():
            return
        from alembic import command

        with self.engine.connect() as connection:
            if self.dialect == "sqlite":
                # Rebuilding a table drops the old one, which would cascade to rows that refer to
                # it.
                connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
                connection.exec_driver_sql(busy_timeout(PATIENCE_S))
                connection.rollback()
            connection = connection.execution_options(**{WRITING: True})
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
                command.upgrade(alembic_config(connection), "head")
            if self.dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA foreign_keys = ON")
                connection.exec_driver_sql(busy_timeout(self._patience_s))
                connection.rollback()

    def revision(self) -> str | None:
        with self.engine.connect() as connection:
            return _revision(connection)

    def is_current(self) -> bool:
        return self.schema_fault() is None

    def remedy(self) -> str | None:
        """Return what to do if no migration leads from the database's schema to this version's;
        None if one does, or the database is empty."""
        revision = self.revision()
        if revision is None or revision in known_revisions():
            return None
        return INSTALL_LATER if _is_newer(revision) else FINISH_FIRST

    def schema_fault(self) -> str | None:
        """Return in a sentence what is wrong with the schema; None if it is current."""
        revision, ours = self.revision(), known_revisions()[-1]
        if revision == ours:
            return None
        if revision is None:
            return "it has no tables of autotune"
        writer = "a later" if _is_newer(revision) else "an earlier"
        return f"{writer} version of autotune wrote it (schema {revision}; this one has {ours})"

    def damage(self) -> str:
        """Return the error of a damaged database file, found by any use of it so far or by reading
        the newest rows; empty if there is none."""
        with suppress(DatabaseError), self.session() as session:
            for table in (CampaignRow, TrialRow, EventRow):
                session.scalars(select(table).order_by(table.id.desc()).limit(1)).first()
        return self._damage

    def _note_damage(self, context: ExceptionContext) -> None:
        if is_damaged(context.original_exception):
            self._damage = cause(context.original_exception)

    def close(self) -> None:
        self.engine.dispose()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION.name):
        return None
    found: str | None = connection.execute(select(VERSION)).scalar_one_or_none()
    return found


def _is_newer(revision: str) -> bool:
    return revision > known_revisions()[-1]


@cache
def known_revisions() -> tuple[str, ...]:
    names = (path.stem for path in (MIGRATIONS / "versions").glob("revision_*.py"))
    return tuple(sorted(name.removeprefix("revision_") for name in names))


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's configuration for the migrations in this package, without a file."""
    from alembic.config import Config  # with its imports, which only a migration needs

    config = Config(stdout=sys.stdout)  # the default is stdout at its import, perhaps closed
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


Kind = Literal["campaign", "trial", "recommendation"]
EVENT_LOCK = 0x6175746F
_WAITING = "events"


def announce(
    session: Session,
    kind: Kind,
    *,
    campaign_id: int,
    trial_number: int | None = None,
    first: bool = False,
) -> None:
    """Write an event when this transaction ends; `Store.transaction` does so.

    Args:
        first: write it before all events announced so far.
    """
    event = EventRow(campaign_id=campaign_id, kind=kind, trial_number=trial_number)
    waiting = session.info.setdefault(_WAITING, [])
    waiting.insert(0 if first else len(waiting), event)


def write_announced(session: Session) -> None:
    """Insert the announced events, last in the transaction, under one lock.

    A reader resumes after the highest id it has seen, so ids must become visible in order, and two
    transactions on PostgreSQL could commit theirs in another one. The lock is the last one that a
    transaction takes, so that no deadlock is possible. SQLite has one writer.
    """
    events = session.info.pop(_WAITING, [])
    if not events:
        return
    session.flush()
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(EVENT_LOCK)))
    session.add_all(events)
    session.flush()
