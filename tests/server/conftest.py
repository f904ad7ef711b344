"""Stores, settings and applications for the tests of the service."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.app import create_app
from server.logs import RotatingLog
from server.settings import Settings
from server.store import Store
from tests.pace import QUICK
from tests.requirement import require
from tests.server import postgres
from tests.server.entitled import entitled
from tests.server.recorded import recorded

__all__ = ["recorded"]


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CONFIG", str(tmp_path / "no-config.toml"))
    for name in Settings.model_fields:
        monkeypatch.delenv(f"AUTOTUNE_{name.upper()}", raising=False)


@pytest.fixture(autouse=True, scope="session")
def _plain_tracebacks() -> None:
    """As the runner logs them: those with all variables, the library's default, take a second."""
    plain = structlog.dev.ConsoleRenderer(
        colors=False, exception_formatter=structlog.dev.plain_traceback
    )
    structlog.configure(processors=[structlog.processors.add_log_level, plain])


@pytest.fixture(autouse=True)
def _logs_of_each_test() -> Iterator[None]:
    """A program that was run in this process writes no line of what comes after it."""
    before = structlog.get_config()
    yield
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if type(handler) in {logging.StreamHandler, RotatingLog}:
            root.removeHandler(handler)
            handler.close()
    structlog.configure(**before)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    found = postgres.binary("initdb") and postgres.server_user()
    require(found, "PostgreSQL server (Debian: postgresql)")
    with postgres.running_server() as url:
        yield url


@pytest.fixture(scope="session")
def migrated_columns(postgres_url: str) -> str:
    """Those of a database whose schema is up to date."""
    made = Store(postgres.emptied(postgres_url))
    made.upgrade()
    made.close()
    return postgres.columns(postgres_url)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on SQLite, and one that is marked `each_database` on PostgreSQL, too."""
    if "database_url" in metafunc.fixturenames and not any(
        mark.args[0] == "database_url" for mark in metafunc.definition.iter_markers("parametrize")
    ):
        each = metafunc.definition.get_closest_marker("each_database")
        kinds = ["sqlite", "postgresql"] if each else ["sqlite"]
        metafunc.parametrize("database_url", kinds, indirect=True)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of the kind that the test asks for.

    Where the test asks for a store, which has every table, those of the last test may stay.
    """
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'autotune.db'}"
    url: str = request.getfixturevalue("postgres_url")
    if "store" in request.fixturenames:
        there = request.getfixturevalue("migrated_columns")
        if postgres.columns(url) == there:
            return postgres.cleared(url)
    return postgres.emptied(url)


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
    )


@pytest.fixture
def sqlite_settings(tmp_path: Path) -> Settings:
    """For what does not depend on the database."""
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite file with every table and no row: a copy is there in a twentieth of the time."""
    file = tmp_path_factory.mktemp("migrated") / "autotune.db"
    made = Store(f"sqlite:///{file}")
    made.upgrade()
    made.close()
    return file


def opened_store(settings: Settings, migrated: Path) -> Store:
    """Of an empty database, whose schema is up to date."""
    opened = Store(settings.url)
    if opened.dialect == "sqlite":
        file = Path(opened.shown)
        file.parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copy(migrated, file)
    else:
        opened.upgrade()
    return opened


@pytest.fixture
def store(settings: Settings, migrated: Path) -> Iterator[Store]:
    opened = opened_store(settings, migrated)
    yield opened
    opened.close()


@pytest.fixture
def app(sqlite_settings: Settings, migrated: Path) -> FastAPI:
    opened_store(sqlite_settings, migrated).close()
    return create_app(sqlite_settings, pace=QUICK)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with entitled(app) as opened:
        yield opened
