"""A service with the adapters of one folder, and a runner that is moved by hand: for tests that
have a fixture `own` with the settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from server.store import Store
from tests.server.entitled import entitled
from tests.server.runner.conftest import Running


@pytest.fixture
def client(own: Settings) -> Iterator[TestClient]:
    with entitled(create_app(own)) as opened:
        yield opened


@pytest.fixture
def running(own: Settings) -> Iterator[Running]:
    store = Store(own.url)
    found = Running(own, store)
    yield found
    found.runner.close()
    store.close()
