from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from server.runner.runner import Runner
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, get_campaign
from server.store.events import last_event_id
from server.store.trials import all_trials
from tests.pace import QUICK
from tests.patience import until
from tests.server.asking import created, read
from tests.server.conftest import opened_store


class Running:
    """A runner in this process, and what it makes of the store."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.runner = Runner(settings, store, pace=QUICK)

    def campaign(self, campaign: Campaign) -> Campaign:
        return read(self.store, get_campaign, campaign.id)

    def trials(self, campaign: Campaign) -> list[Trial]:
        return read(self.store, all_trials, campaign.id)

    def until(self, holds: Callable[[], bool], *, runner: Runner | None = None) -> None:
        """Rounds until it holds."""
        until(holds, step=(runner or self.runner).round, progress=self._events)

    def _events(self) -> int:
        return read(self.store, last_event_id)

    def until_state(self, campaign: Campaign, state: str) -> Campaign:
        self.until(lambda: self._state(campaign) == state)
        return self.campaign(campaign)

    def _state(self, campaign: Campaign) -> str:
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


@pytest.fixture
def running_on_each(settings: Settings, store: Store) -> Iterator[Running]:
    """On each kind of database in turn."""
    found = Running(settings, store)
    yield found
    found.runner.close()


@pytest.fixture
def running(sqlite_settings: Settings, migrated: Path) -> Iterator[Running]:
    store = opened_store(sqlite_settings, migrated)
    found = Running(sqlite_settings, store)
    yield found
    found.runner.close()
    store.close()
