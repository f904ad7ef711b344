from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_server

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from server.app import create_app
from server.service import WebServer
from server.settings import Settings
from server.store import Store
from server.store.campaigns import get_campaign
from tests.pace import QUICK
from tests.server.asking import read
from tests.server.entitled import entitled
from tests.server.recorded import NUMBER, copied

HERE = Path(__file__).parent


@pytest.fixture
def store(app: FastAPI) -> Store:
    """The application's own."""
    found: Store = app.state.store
    return found


@pytest.fixture(scope="session")
def finished(
    recorded: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[FastAPI, Campaign]]:
    """An application with one campaign that is done, for what changes nothing."""
    folder = copied(recorded, tmp_path_factory.mktemp("finished"))
    app = create_app(Settings(data_dir=folder), pace=QUICK)
    store: Store = app.state.store
    yield app, read(store, get_campaign, NUMBER)
    store.close()


@pytest.fixture(scope="module")
def shared_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """For what changes nothing, refusals above all: one application for a module."""
    folder = tmp_path_factory.mktemp("shared")
    app = create_app(
        Settings(data_dir=folder / "data", profiles_dir=folder / "profiles"), pace=QUICK
    )
    with entitled(app) as opened:
        yield opened


@dataclass(frozen=True, kw_only=True)
class Live:
    """A service on a real socket, for what has to be seen as it is sent."""

    url: str
    headers: dict[str, str]
    stop: Callable[[], None]
    thread: threading.Thread


@contextmanager
def serving(app: FastAPI) -> Iterator[Live]:
    with create_server(("127.0.0.1", 0)) as bound:
        server = WebServer(app, app.state.settings)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()

        def stop() -> None:
            server.should_exit = True

        try:
            yield Live(
                url=f"http://127.0.0.1:{bound.getsockname()[1]}",
                headers={"Authorization": f"Bearer {app.state.authenticator.token}"},
                stop=stop,
                thread=thread,
            )
        finally:
            stop()
            thread.join()


@pytest.fixture
def live(app: FastAPI) -> Iterator[Live]:
    with serving(app) as found:
        yield found


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all that reads the finished campaign, whose search takes a second, in one process."""
    for item in items:
        if "finished" in getattr(item, "fixturenames", ()) and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("finished-campaign"))
