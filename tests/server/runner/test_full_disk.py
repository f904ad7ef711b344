from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.runner.runner import DISK_FULL
from server.settings import Settings
from server.store import Store
from server.store.campaigns import resume_campaign
from tests.requirement import require
from tests.server.asking import created
from tests.server.runner.conftest import Running


def mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds a folder or two and no more."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = os.geteuid() == 0 and mount(folder, "size=64k,nr_inodes=3")
    require(mounted, "right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_pauses_the_campaign_and_room_lets_it_go_on(
    small_disk: Path, tmp_path: Path
) -> None:
    settings = Settings(
        data_dir=small_disk,
        database_url=f"sqlite:///{tmp_path / 'elsewhere.db'}",
        poll_interval_s=0.02,
    )
    store = Store(settings.url)
    store.upgrade()
    running = Running(settings, store)
    campaign = created(store)
    assert running.until_state(campaign, "paused").reason == DISK_FULL
    assert all(trial.error is None for trial in running.trials(campaign))
    mount(small_disk, "remount,size=8m,nr_inodes=1000")
    with store.transaction() as session:
        resume_campaign(session, campaign.id)
    running.until_state(campaign, "done")
    running.runner.close()
    store.close()
