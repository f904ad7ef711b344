from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import psutil
import pytest
from structlog.testing import capture_logs

from server.runner.__main__ import EXIT_IN_USE, EXIT_INVALID, main
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership
from tests.patience import until


@pytest.fixture
def _signals() -> Iterator[None]:
    """As they were, after a runner in this process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def refusal(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """The exit code of a runner with these settings, and what it prints."""
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["runner"])
    return main(), capsys.readouterr().err


def test_a_killed_runner_is_restarted_and_a_stopped_one_is_gone(
    sqlite_settings: Settings,
) -> None:
    process = RunnerSupervisor(sqlite_settings)
    process.start()
    first = process.pid
    assert first is not None
    until(lambda: "runner_started" in process.log_path.read_text())
    modes = {path.name: path.stat().st_mode & 0o077 for path in process.log_path.parent.iterdir()}
    assert not any(modes.values()), modes
    psutil.Process(first).kill()
    until(lambda: process.pid not in {None, first})
    second = process.pid
    assert second is not None
    until(lambda: process.log_path.read_text().count("runner_started") == 2)
    process.stop()
    assert not psutil.pid_exists(second)
    assert "runner_stopped" in process.log_path.read_text()


@pytest.mark.usefixtures("_signals")
def test_a_runner_is_refused_in_one_sentence(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a file where another one works, and on what is no database."""
    store = Store(sqlite_settings.url)
    store.upgrade()
    with ownership(store, "runner"):
        code, text = refusal(sqlite_settings, monkeypatch, capsys)
    store.close()
    assert (code, text.count("\n")) == (EXIT_IN_USE, 1)
    assert "a runner already works on the database" in text
    foreign = sqlite_settings.model_copy(update={"database_url": "mysql://host/name"})
    code, text = refusal(foreign, monkeypatch, capsys)
    assert (code, text.count("\n")) == (EXIT_INVALID, 1)
    assert "database_url" in text


def test_a_runner_without_its_database_ends_and_makes_no_other(
    sqlite_settings: Settings,
) -> None:
    process = RunnerSupervisor(sqlite_settings)
    with capture_logs() as logs:
        process.start()
        until(lambda: "runner_started" in process.log_path.read_text())
        (sqlite_settings.data_dir / "autotune.db").unlink()
        until(lambda: any(entry["event"] == "database_replaced" for entry in logs))
    process.stop()
    assert "the database was deleted since" in process.log_path.read_text()
    assert not (sqlite_settings.data_dir / "autotune.db").exists()
