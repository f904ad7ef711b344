from __future__ import annotations

import os
import subprocess
import sys

import psutil
from structlog.testing import capture_logs

from server.runner.__main__ import EXIT_IN_USE, EXIT_INVALID
from server.runner.supervisor import RunnerSupervisor
from server.settings import Settings
from server.store import Store
from server.store.ownership import ownership
from tests.patience import PATIENCE_S, until


def run(settings: Settings) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "server.runner"],
        env=os.environ | settings.environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_killed_runner_is_started_again_and_a_stopped_one_is_gone(
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


def test_a_second_runner_on_one_file_is_refused_in_one_sentence(sqlite_settings: Settings) -> None:
    store = Store(sqlite_settings.url)
    store.upgrade()
    with ownership(store, "runner"):
        ended = run(sqlite_settings)
    store.close()
    assert ended.returncode == EXIT_IN_USE
    assert ended.stderr.count("\n") == 1
    assert "a runner already works on the database" in ended.stderr


def test_a_database_that_is_none_is_refused_in_one_sentence(sqlite_settings: Settings) -> None:
    ended = run(sqlite_settings.model_copy(update={"database_url": "mysql://host/name"}))
    assert ended.returncode == EXIT_INVALID
    assert ended.stderr.count("\n") == 1
    assert "database_url" in ended.stderr


def test_a_runner_whose_database_is_deleted_ends_and_makes_no_other(
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
