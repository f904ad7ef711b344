"""A runner in this process, moved by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import select

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from evaluators.trial import log_end
from server.pace import Pace
from server.runner.runner import Runner
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, get_campaign
from server.store.events import last_event_id
from server.store.tables import CampaignRow
from server.store.trials import all_trials
from tests.pace import QUICK
from tests.patience import until
from tests.server.asking import created, read


class Running:
    """A runner in this process, and what it makes of the store."""

    def __init__(self, settings: Settings, store: Store, *, pace: Pace = QUICK) -> None:
        self.settings = settings
        self.store = store
        self.pace = pace
        self.runner = Runner(settings, store, pace=pace)

    def campaign(self, campaign: Campaign) -> Campaign:
        return read(self.store, get_campaign, campaign.id)

    def trials(self, campaign: Campaign) -> list[Trial]:
        return read(self.store, all_trials, campaign.id)

    def until(self, holds: Callable[[], bool], *, runner: Runner | None = None) -> None:
        """Rounds until it holds."""
        until(holds, self.standing, step=(runner or self.runner).round, progress=self._events)

    def standing(self) -> list[str]:
        """How all campaigns and their trials stand, for whoever reads why a test failed."""
        with self.store.session() as session:
            every = [get_campaign(session, id_) for id_ in session.scalars(select(CampaignRow.id))]
        campaigns = [f"campaign {each.id}: {each.state}, {each.reason}" for each in every]
        return campaigns + [
            f"trial {trial.id}: {trial.state} {trial.phase} {trial.phase_reason} {trial.error}"
            f"\n{log_end(self._folder(trial), most_bytes=2000)}"
            for each in every
            for trial in self.trials(each)
        ]

    def _folder(self, trial: Trial) -> Path:
        folder = self.settings.trial_dir(trial.token)
        return (attempt_folders(folder) or [folder])[-1]

    def restart_runner(self) -> None:
        self.runner.close()
        self.runner = Runner(self.settings, self.store, pace=self.pace)

    def _events(self) -> int:
        return read(self.store, last_event_id)

    def until_state(self, campaign: Campaign, state: str) -> Campaign:
        self.until(lambda: self.state(campaign) == state)
        return self.campaign(campaign)

    def state(self, campaign: Campaign) -> str:
        """Alone: all that is told of a campaign is a tenth of what a round costs."""
        with self.store.session() as session:
            return campaign_row(session, campaign.id).state

    def done(self, **changes: Any) -> Campaign:
        """A campaign that was created so, at its end."""
        return self.until_state(created(self.store, **changes), "done")

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.runner.round()
            time.sleep(QUICK.round_s)


@contextmanager
def running_on(settings: Settings) -> Iterator[Running]:
    """With a database that is made."""
    store = Store(settings.url)
    store.upgrade()
    running = Running(settings, store)
    try:
        yield running
    finally:
        running.runner.close()
        store.close()
