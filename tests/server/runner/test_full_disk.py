from __future__ import annotations

from pathlib import Path

from server.runner.runner import DISK_FULL
from server.settings import Settings
from server.store import Store
from server.store.campaigns import resume_campaign
from tests.full_disk import full_disk
from tests.server.asking import created
from tests.server.runner.conftest import Running


def test_a_full_disk_pauses_the_campaign_and_room_lets_it_go_on(tmp_path: Path) -> None:
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
        assert running.until_state(campaign, "paused").reason == DISK_FULL
        assert all(trial.error is None for trial in running.trials(campaign))
        disk.make_room()
        with store.transaction() as session:
            resume_campaign(session, campaign.id)
        running.until_state(campaign, "done")
        running.runner.close()
        store.close()
