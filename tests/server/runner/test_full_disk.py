from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from server.settings import Settings
from server.store import Store
from tests.full_disk import full_disk
from tests.server.asking import created
from tests.server.runner.conftest import Running


@contextmanager
def running_on(folder: Path, database: Path) -> Iterator[Running]:
    settings = Settings(data_dir=folder, database_url=f"sqlite:///{database}", poll_interval_s=0.02)
    store = Store(settings.url)
    store.upgrade()
    running = Running(settings, store)
    try:
        yield running
    finally:
        running.runner.close()
        store.close()


def test_a_trial_waits_for_room_on_the_disk_and_then_runs(tmp_path: Path) -> None:
    with (
        full_disk(tmp_path / "small", inodes=3) as disk,
        running_on(disk.folder, tmp_path / "elsewhere.db") as running,
    ):
        campaign = created(running.store)

        def reasons() -> set[str]:
            return {each.phase_reason for each in running.trials(campaign) if each.phase}

        running.until(lambda: bool(reasons()))
        assert reasons() == {"its folder cannot be written: No space left on device"}
        assert running.campaign(campaign).state == "running"
        disk.make_room()
        running.until_state(campaign, "done")


def test_a_campaign_waits_for_a_file_system_that_cannot_be_written(tmp_path: Path) -> None:
    """It goes on by itself, and nothing is held against a layout."""
    with (
        full_disk(tmp_path / "small", inodes=1000) as disk,
        running_on(disk.folder, tmp_path / "elsewhere.db") as running,
    ):
        disk.make_room()
        campaign = created(running.store, time_scale=0.002)
        running.until(lambda: any(t.phase == "running" for t in running.trials(campaign)))
        disk.forbid_writing()
        read_only = os.strerror(errno.EROFS)
        running.until(lambda: read_only in running.campaign(campaign).reason)
        assert running.campaign(campaign).reason.startswith("waits for a file system: ")
        assert str(disk.folder) in running.campaign(campaign).reason
        assert running.campaign(campaign).state in {"running", "confirming"}
        disk.allow_writing()
        running.until(lambda: running.campaign(campaign).reason == "")
        running.until_state(campaign, "done")
        assert {trial.state for trial in running.trials(campaign)} <= {"ok", "oom"}
