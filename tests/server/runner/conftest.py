from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from server.settings import Settings
from server.store import Store
from tests.evaluators.adapter.samples import my_script
from tests.server.conftest import opened_store
from tests.server.running import Running


@pytest.fixture
def running_on_each(settings: Settings, store: Store) -> Iterator[Running]:
    """On each kind of database in turn."""
    found = Running(settings, store)
    yield found
    found.runner.close()


@pytest.fixture
def running(sqlite_settings: Settings, migrated: Path) -> Iterator[Running]:
    store = opened_store(sqlite_settings, migrated)
    found = Running(sqlite_settings, store)
    yield found
    found.runner.close()
    store.close()


@pytest.fixture
def own(sqlite_settings: Settings) -> Settings:
    """With an adapter of a user's: my-script."""
    sqlite_settings.adapters_dir.mkdir(parents=True)
    my_script(sqlite_settings.adapters_dir)
    return sqlite_settings
