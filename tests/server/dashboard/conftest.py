"""A real service on a real port, and a real browser that notes everything that goes wrong."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    expect,
    sync_playwright,
)

from autotune.schemas.campaigns import Campaign
from server.app import create_app
from server.auth.authentication import SIGN_IN, Authenticator
from server.service import WebServer
from server.settings import Settings
from tests.pace import QUICK
from tests.patience import PATIENCE_S, until
from tests.requirement import require
from tests.server.dashboard.campaigns import Campaigns

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "chrome")
"""The first has no windows, menus and profiles to start: a third of the processor time."""

CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PATIENCE_MS = 1000 * PATIENCE_S

expect.set_options(timeout=PATIENCE_MS)


class Service:
    """The service over one data folder; it can be stopped and started again on its port.

    Args:
        scripts: where it finds the charts' script, or keeps it for others.
    """

    by_url: ClassVar[dict[str, Service]] = {}

    def __init__(self, data_dir: Path, *, scripts: Path) -> None:
        (data_dir / "cache").symlink_to(scripts)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.settings = Settings(data_dir=data_dir, port=port)
        self.campaigns = Campaigns(self.settings)
        self.url = f"http://127.0.0.1:{port}"
        self.start()

    def start(self) -> None:
        self.server = WebServer(create_app(self.settings, pace=QUICK), self.settings)
        self.by_url[self.url] = self
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        until(lambda: self.server.started, "the service has started")

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join()

    @property
    def authenticator(self) -> Authenticator:
        found: Authenticator = self.server.app.state.authenticator
        return found

    def let_in(self, context: BrowserContext) -> None:
        """Open the address that works once; what the browser has of an earlier start is worth
        nothing."""
        key = self.authenticator.new_key()
        answer = context.request.get(f"{self.url}{SIGN_IN}?key={key}")
        assert answer.ok, answer.text()

    def close(self) -> None:
        self.stop()
        del self.by_url[self.url]
        self.campaigns.store.close()


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder for all processes of tests: the charts' script takes a second of a core to make."""
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "scripts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory, scripts: Path) -> Iterator[Service]:
    """Shared: every test makes campaigns of its own in it."""
    data_dir = tmp_path_factory.mktemp("dashboard")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AUTOTUNE_CONFIG", str(data_dir / "no-config.toml"))
        running = Service(data_dir, scripts=scripts)
    yield running
    running.close()


@pytest.fixture(scope="session")
def done(service: Service) -> Campaign:
    """A finished campaign on two numbers of nodes, for tests that only read it."""
    return service.campaigns.done(space={"tensor_parallel": [1, 2, 4, 8], "num_nodes": [2, 4]})


@pytest.fixture
def own_service(tmp_path: Path, scripts: Path) -> Iterator[Service]:
    """For one test alone: with an empty database, and free to be stopped."""
    running = Service(tmp_path, scripts=scripts)
    yield running
    running.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For no longer than a module: its event loop would stand in the way of other tests' own."""
    require(CHROMIUM, "Chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


class Faults:
    """What a page complained of: script errors, refused resources, violated policies."""

    def __init__(self, context: BrowserContext) -> None:
        self.found: list[str] = []
        self.expected = ["willReadFrequently"]  # the tests' own reading of pixels
        context.on("console", self._console)
        context.on("weberror", lambda error: self.found.append(str(error.error)))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(message.text)

    def expect(self, words: str) -> None:
        """The browser will report this, rightly: such as a refusal that the test provokes."""
        self.expected.append(words)

    def check(self) -> None:
        left = [f for f in self.found if not any(words in f for words in self.expected)]
        assert left == []


Open = Callable[..., Page]


@pytest.fixture
def faults() -> list[Faults]:
    return []


@pytest.fixture
def visit(chromium: Browser, faults: list[Faults]) -> Iterator[Open]:
    """Opens an address in a fresh context and waits until it is ready; checks faults at the end."""
    contexts: list[BrowserContext] = []

    def visit(url: str, *, width: int = 1280, height: int = 900, **options: Any) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        parts = urlsplit(url)
        Service.by_url[f"{parts.scheme}://{parts.netloc}"].let_in(context)
        faults.append(Faults(context))
        page = context.new_page()
        page.goto(url)
        page.wait_for_selector("body[data-ready]")
        return page

    yield visit
    for context in contexts:
        context.close()
    for fault in faults:
        fault.check()
