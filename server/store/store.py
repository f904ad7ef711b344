"""The store: sessions on one database, and its schema brought up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files

from sqlalchemy import Connection, column, func, inspect, select, table
from sqlalchemy.orm import Session

from server.store.announcements import write_announced
from server.store.engine import WRITING, build_engine
from server.store.errors import NewerSchema

UPGRADE_LOCK = 0x6D696772
VERSION = table("alembic_version", column("version_num"))
"""Where Alembic notes the schema's version."""


class Store:
    """All campaigns, trials and events of one database.

    Raises:
        InvalidInput: the URL names neither an SQLite file nor a PostgreSQL database.
    """

    def __init__(self, database_url: str) -> None:
        self.engine = build_engine(database_url)

    @property
    def dialect(self) -> str:
        return self.engine.dialect.name

    @property
    def shown(self) -> str:
        """Return what people know the database by: its file, or its address without a password."""
        url = self.engine.url
        return str(url.database) if self.dialect == "sqlite" else url.render_as_string()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Open a session for reading: one consistent view, nothing kept."""
        with Session(self.engine) as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Open a session for writing: committed at its end with the events announced in it."""
        with Session(self.engine, expire_on_commit=False) as session, session.begin():
            session.connection(execution_options={WRITING: True})
            yield session
            write_announced(session)

    def upgrade(self) -> None:
        """Bring the schema up to date; several processes may do so at once.

        Raises:
            NewerSchema: a later version of the program has brought it beyond this one's.
        """
        if self.is_newer():
            raise NewerSchema(f"{self.shown}: {self.schema_fault()}; install that version")
        if self.is_current():
            return
        from server.store.migration import migrate

        with self.engine.connect() as connection:
            if self.dialect == "sqlite":
                # Rebuilding a table drops the old one, which would cascade to what refers to it.
                connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
                connection.rollback()
            connection = connection.execution_options(**{WRITING: True})
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
                migrate(connection)
            if self.dialect == "sqlite":
                connection.exec_driver_sql("PRAGMA foreign_keys = ON")
                connection.rollback()

    def revision(self) -> str | None:
        """Return the version of the schema; None where there is none, as in an empty database."""
        with self.engine.connect() as connection:
            return _revision(connection)

    def is_current(self) -> bool:
        """Return whether the schema is the one that this version of the program expects."""
        return self.schema_fault() is None

    def is_newer(self) -> bool:
        """Return whether a later version of the program has written the database."""
        return _is_newer(self.revision())

    def schema_fault(self) -> str | None:
        """Return what is wrong with the schema, in a sentence; None where nothing is."""
        revision, ours = self.revision(), known_revisions()[-1]
        if revision == ours:
            return None
        if revision is None:
            return "it has no tables of autotune"
        writer = "a later" if _is_newer(revision) else "an earlier"
        return f"{writer} version of autotune wrote it (schema {revision}; this one has {ours})"

    def close(self) -> None:
        self.engine.dispose()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION.name):
        return None
    found: str | None = connection.execute(select(VERSION)).scalar_one_or_none()
    return found


def _is_newer(revision: str | None) -> bool:
    """Return whether this version of the program has never heard of the schema's version."""
    return revision is not None and revision not in known_revisions()


@cache
def known_revisions() -> tuple[str, ...]:
    """Return the versions of the schema that this version of the program knows, the last one last:
    each migration has its own in its name."""
    versions = files("server.store").joinpath("migrations", "versions").iterdir()
    names = (version.name for version in versions if version.name.startswith("revision_"))
    return tuple(sorted(name.removeprefix("revision_").removesuffix(".py") for name in names))
