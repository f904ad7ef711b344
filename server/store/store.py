"""The store: sessions on one database, and its schema brought up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy.orm import Session

from server.store.announcements import write_announced
from server.store.engine import WRITING, build_engine
from server.store.errors import NewerSchema

MIGRATIONS = Path(__file__).parent / "migrations"
UPGRADE_LOCK = 0x6D696772


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
        with self.engine.connect() as connection:
            if self.dialect == "sqlite":
                # Rebuilding a table drops the old one, which would cascade to what refers to it.
                connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
                connection.rollback()
            connection = connection.execution_options(**{WRITING: True})
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(UPGRADE_LOCK)))
                command.upgrade(alembic_config(connection), "head")
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
        revision, ours = self.revision(), _scripts().get_current_head()
        if revision == ours:
            return None
        if revision is None:
            return "it has no tables of autotune"
        writer = "a later" if _is_newer(revision) else "an earlier"
        return f"{writer} version of autotune wrote it (schema {revision}; this one has {ours})"

    def close(self) -> None:
        self.engine.dispose()


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _is_newer(revision: str | None) -> bool:
    """Return whether this version of the program has never heard of the schema's version."""
    known = {script.revision for script in _scripts().walk_revisions()}
    return revision is not None and revision not in known


def _scripts() -> ScriptDirectory:
    return ScriptDirectory(str(MIGRATIONS))


def alembic_config(connection: Connection) -> Config:
    """Return Alembic's configuration without a file, for the migrations inside this package."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
