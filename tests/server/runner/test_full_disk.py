from __future__ import annotations

from pathlib import Path

from server.settings import Settings
from server.store import Store
from tests.full_disk import full_disk
from tests.server.asking import created
from tests.server.runner.conftest import Running


def test_a_trial_waits_for_room_on_the_disk_and_then_runs(tmp_path: Path) -> None:
    with full_disk(tmp_path / "small", inodes=3) as disk:
        settings = Settings(
            data_dir=disk.folder,
            database_url=f"sqlite:///{tmp_path / 'elsewhere.db'}",
            poll_interval_s=0.02,
        )
        store = Store(settings.url)
        store.upgrade()
        running = Running(settings, store)
        campaign = created(store)

        def reasons() -> set[str]:
            return {each.phase_reason for each in running.trials(campaign) if each.phase}

        running.until(lambda: bool(reasons()))
        assert reasons() == {"its folder cannot be written: No space left on device"}
        assert running.campaign(campaign).state == "running"
        disk.make_room()
        running.until_state(campaign, "done")
        running.runner.close()
        store.close()
