from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from server.settings import Settings
from tests.failing_file_system import failing_file_system
from tests.full_disk import full_disk
from tests.server.asking import created
from tests.server.runner.test_campaign import SHORT
from tests.server.running import running_on


def settings_of(folder: Path, tmp_path: Path) -> Settings:
    """With a database elsewhere."""
    return Settings(data_dir=folder, database_url=f"sqlite:///{tmp_path}/elsewhere.db")


def test_a_trial_waits_for_room_on_the_disk_and_then_runs(tmp_path: Path) -> None:
    with (
        full_disk(tmp_path / "small", inodes=3) as disk,
        running_on(settings_of(disk.folder, tmp_path)) as running,
    ):
        campaign = created(running.store, **SHORT)

        def reasons() -> set[str]:
            return {each.phase_reason for each in running.trials(campaign) if each.phase}

        running.until(lambda: bool(reasons()))
        assert reasons() == {"its folder cannot be written: No space left on device"}
        assert running.campaign(campaign).state == "running"
        disk.make_room()
        running.until_state(campaign, "done")


@contextmanager
def read_only(folder: Path) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    with full_disk(folder, inodes=1000) as disk:
        disk.make_room()

        @contextmanager
        def fails() -> Iterator[None]:
            disk.forbid_writing()
            yield
            disk.allow_writing()

        yield fails


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO, errno.ESTALE], ids=errno.errorcode.get)
def test_a_campaign_waits_for_a_file_system_that_fails(tmp_path: Path, error: int) -> None:
    """It goes on by itself, and nothing is held against a layout."""
    folder = tmp_path / "small"
    with ExitStack() as stack:
        if error == errno.EROFS:
            fails = stack.enter_context(read_only(folder))
        else:
            folder.mkdir()
            fails = partial(failing_file_system, folder, error)
        running = stack.enter_context(running_on(settings_of(folder, tmp_path)))
        campaign = created(running.store, **SHORT)
        running.until(lambda: running.campaign(campaign).trials == 1)
        with fails():
            running.until(lambda: os.strerror(error) in running.campaign(campaign).reason)
            assert running.campaign(campaign).reason.startswith("waits for a file system: ")
            assert str(folder) in running.campaign(campaign).reason
            assert running.campaign(campaign).state == "running"
        running.until(lambda: running.campaign(campaign).reason == "")
        running.until_state(campaign, "done")
        assert {trial.state for trial in running.trials(campaign)} <= {"ok", "oom"}
