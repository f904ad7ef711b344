"""A PostgreSQL server for tests: its own cluster in a temporary folder, reached by a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from sqlalchemy import create_engine

SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "16MB",
}
START_LIMIT_S = 120.0
COLUMNS = """
SELECT md5(string_agg(
    concat_ws(' ', relname, attname, atttypid, attnotnull), ',' ORDER BY relname, attnum))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace = 'public'::regnamespace
"""
"""Of tables and of indexes."""
CLEAR = """
DO $$
DECLARE
    name text;
    has_rows boolean;
BEGIN
    FOR name IN SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
        AND relname <> 'alembic_version'
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %I)', name) INTO has_rows;
        IF has_rows THEN
            EXECUTE format('TRUNCATE %I CASCADE', name);
        END IF;
    END LOOP;
    PERFORM setval(oid::regclass, 1, false) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'S';
END $$
"""
"""Most tables have no row, and one is emptied in the time in which fifty are looked at."""


def binary(name: str) -> str | None:
    """Debian keeps the server's programs off the path."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, folders)))


def server_user() -> str | None:
    """PostgreSQL refuses to run as root: then it runs as its own user; None where that lacks."""
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return "postgres" if any(user.pw_name == "postgres" for user in pwd.getpwall()) else None


class PostgresServer:
    """A server with its data in a folder that goes with it.

    Attributes:
        url: of its `postgres` database.
    """

    def __init__(self, **settings: str) -> None:
        """`settings`: besides those that make tests fast, or instead of them."""
        user, initdb, postgres = server_user(), binary("initdb"), binary("postgres")
        assert user
        assert initdb
        assert postgres
        self._user = user
        self._folder = tempfile.TemporaryDirectory(prefix="autotune-pg-")
        folder = self._folder.name
        shutil.chown(folder, user=user)
        options = ["--auth=trust", "--username=postgres", "--no-sync", "--encoding=UTF8"]
        _run([initdb, *options, "-D", f"{folder}/data"], user=user)
        switches = [f"-c{key}={value}" for key, value in (SETTINGS | settings).items()]
        sockets = f"-cunix_socket_directories={folder}"
        self._command = [postgres, "-D", f"{folder}/data", sockets, *switches]
        self._server: subprocess.Popen[bytes] | None = None
        self.url = f"postgresql+psycopg://postgres@/postgres?host={folder}"

    def start(self) -> None:
        """It answers when this returns."""
        self._server = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            user=self._user,
            cwd=self._folder.name,
        )
        _wait_for(self.url, self._server)

    def stop(self) -> None:
        """All connections are cut; what was committed is there when it starts again."""
        if self._server:
            self._server.send_signal(signal.SIGINT)
            self._server.wait(START_LIMIT_S)
        self._server = None

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of its `postgres` database."""
    server = PostgresServer()
    try:
        server.start()
        yield server.url
    finally:
        server.close()


def emptied(url: str) -> str:
    """The same database without a table in it: much faster than another database."""
    _execute(url, "DROP SCHEMA public CASCADE")
    _execute(url, "CREATE SCHEMA public")
    return url


def columns(url: str) -> str:
    """All columns of all its tables, in few letters."""
    with psycopg.connect(_address(url)) as connection:
        row = connection.execute(COLUMNS).fetchone()
    assert row
    return str(row[0])


def cleared(url: str) -> str:
    """The same database without a row, and numbers that begin with one again; its tables and the
    version of its schema stay. A fifth of the time in which tables are made."""
    with psycopg.connect(_address(url), autocommit=True) as connection:
        connection.execute(CLEAR)
    return url


def _address(url: str) -> str:
    """As the driver itself reads it."""
    return url.replace("+psycopg", "")


def _execute(url: str, statement: str) -> None:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def _run(command: list[str], *, user: str) -> None:
    subprocess.run(command, user=user, check=True, capture_output=True, cwd="/")


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return _execute(url, "SELECT 1")
        except Exception:
            if time.monotonic() > ends or server.poll() is not None:
                raise
            time.sleep(0.05)
