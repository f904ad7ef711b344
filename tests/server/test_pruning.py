from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from server.pruning import prunable, prune
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, change_state, resume_campaign
from server.store.tables import CampaignRow
from server.store.trials import finish_trial
from tests.server.asking import created, ended, with_trials

NOW = datetime.now(UTC)
OLD = NOW - timedelta(days=100)
BEFORE = NOW - timedelta(days=90)
LENGTH = 1 << 30
"""Of each log, nearly all of it a hole."""


def campaign(
    store: Store, settings: Settings, state: CampaignState, *, finished_at: datetime | None
) -> Campaign:
    """One with a trial whose log was shortened."""
    made = created(store)
    [trial] = with_trials(store, made, 1)
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OK))
        row = campaign_row(session, made.id)
        change_state(session, row, state)
        row.finished_at = finished_at
    folder(settings, trial.token)
    return made


def folder(settings: Settings, name: str, *, since: datetime = OLD) -> Path:
    made = settings.trials_dir / name
    made.mkdir(parents=True)
    log = made / "trial.log"
    log.write_bytes(b"x" * 1000)
    os.truncate(log, LENGTH)
    os.utime(made, (since.timestamp(), since.timestamp()))
    return made


def test_what_ended_long_ago_goes_and_all_else_stays(store: Store, settings: Settings) -> None:
    done = campaign(store, settings, CampaignState.DONE, finished_at=OLD)
    failed = campaign(store, settings, CampaignState.FAILED, finished_at=OLD)
    campaign(store, settings, CampaignState.DONE, finished_at=NOW)
    campaign(store, settings, CampaignState.PAUSED, finished_at=None)
    lost = folder(settings, "c9-t1-0123456789ab")
    of_now = folder(settings, "c9-t2-0123456789ab", since=NOW)
    own = folder(settings, "c9-t3-notes")

    found = prunable(store, settings, before=BEFORE)
    assert [each.id for each in found.campaigns] == [done.id, failed.id]
    taken = 512 * (lost / "trial.log").stat().st_blocks
    assert 0 < taken < LENGTH
    assert (found.folders, found.size_bytes) == ([lost], 3 * taken)
    with store.transaction() as session:
        resume_campaign(session, failed.id)  # after it was found, and before it would go

    gone = prune(store, settings, found)
    assert ([each.id for each in gone.campaigns], gone.size_bytes) == ([done.id], 2 * taken)
    with store.session() as session:
        assert [row.id for row in session.query(CampaignRow).order_by(CampaignRow.id)] == [2, 3, 4]
    assert of_now.exists()
    assert own.exists()
    assert len(list(settings.trials_dir.iterdir())) == 5, "of campaigns 2 to 4, and these two"
