"""One real service for all tests of the commands, and a way to run a command on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from server.cli.application import app
from tests.server.recorded import NUMBER, copied
from tests.serving import Served, serving

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one document on stdout."""
        return json.loads(self.out)


class Autotune:
    """Runs `autotune` as typed, in this process."""

    def __call__(self, *arguments: str, typed: str | None = None) -> Ran:
        done = CliRunner().invoke(app, list(arguments), input=typed, prog_name="autotune")
        return Ran(code=done.exit_code, out=done.stdout, err=done.stderr)

    def done(self, *arguments: str) -> Ran:
        """Run a command that has to succeed."""
        ran = self(*arguments)
        assert ran.code == 0, ran.out + ran.err
        return ran


@pytest.fixture(scope="package")
def service(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For no longer than these tests: its runner takes a twentieth of a core while it waits."""
    with serving(copied(recorded, tmp_path_factory.mktemp("service"))) as served:
        yield served


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Autotune:
    """Commands where no service answers."""
    monkeypatch.setenv("AUTOTUNE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("COLUMNS", "200")
    return Autotune()


@pytest.fixture
def autotune(service: Served, monkeypatch: pytest.MonkeyPatch) -> Autotune:
    """Commands on the service."""
    monkeypatch.setenv("AUTOTUNE_URL", service.url)
    monkeypatch.setenv("COLUMNS", "200")
    return Autotune()


@pytest.fixture
def finished() -> str:
    """The number of the recorded campaign."""
    return str(NUMBER)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all that shares a service, which has to be started, in one process.

    First, because pytest-xdist reads the groups in a hook of the same name.
    """
    for item in items:
        shared = {"service", "resting"} & set(getattr(item, "fixturenames", ()))
        if shared and item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.xdist_group("cli-service"))
