"""A service with the adapters of one folder, and a runner that is moved by hand. A test that has
another adapter than my-script overrides the fixture `own`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from server.store import Store
from tests.evaluators.adapter.samples import my_script
from tests.pace import QUICK
from tests.server.entitled import entitled
from tests.server.runner.conftest import Running


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    folder = tmp_path / "adapters"
    folder.mkdir()
    my_script(folder)
    return Settings(data_dir=tmp_path / "data", adapters_dir=folder)


@pytest.fixture
def client(own: Settings) -> Iterator[TestClient]:
    with entitled(create_app(own, pace=QUICK)) as opened:
        yield opened


@pytest.fixture
def running(own: Settings) -> Iterator[Running]:
    store = Store(own.url)
    found = Running(own, store)
    yield found
    found.runner.close()
    store.close()
