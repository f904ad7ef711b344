"""A service of its own, and campaigns in which something happens."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from autotune.search import ended_of
from server.campaign.best import BestSoFar
from server.runner.belief import CampaignSnapshot, SearchBelief
from server.runner.trial_ends import OutcomeNotes
from server.settings import Settings
from server.store.events import last_event_id
from server.store.outcomes import BEST
from server.store.trials import all_trials, finish_trial
from tests.server.dashboard.campaigns import Campaigns


class Scene:
    """The campaigns, and a trial that goes from node to node, which is an event each time."""

    def __init__(self, settings: Settings, *, trials: int) -> None:
        self._made = Campaigns(settings)
        self.campaign: Campaign = self._made.many(trials)
        self.ids = [self.campaign.id, self.another(trials)]
        self._strategies = self._made.strategies(self.campaign, 1, fitting=True)
        self._trial: Trial = self._made.start(self.campaign, self._strategies)[0]
        self._moves = itertools.count()

    @property
    def last(self) -> int:
        """The id of the last event of all."""
        with self._made.store.session() as session:
            return last_event_id(session)

    def event(self) -> int:
        """Let something happen in the campaign; return the event's id."""
        self._made.stand([self._trial], phase="running", host=f"node{next(self._moves)}")
        return self.last

    def another(self, trials: int) -> int:
        """Let there be a further campaign with so many trials; return its id."""
        return self._made.many(trials).id

    def end(self) -> None:
        """Let a trial start and end in the campaign; store the best and the outcome, as a runner
        does."""
        made, campaign = self._made, self.campaign
        (trial,) = made.start(campaign, self._strategies)
        (result,) = made.simulate(campaign, [trial])
        with made.store.transaction() as session:
            finish_trial(session, trial, result)
            trials = all_trials(session, campaign.id)
            best = BestSoFar.of(campaign, trials)
            BEST.write(session, campaign.id, best, ended=len(ended_of(trials)))
        snapshot = CampaignSnapshot.read(made.store, campaign.id, newest=self.last)
        belief = SearchBelief(made.store, lambda: snapshot)
        OutcomeNotes(made.store).keep(snapshot, belief, at_once=True)


@contextmanager
def serving(data_dir: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run `autotune serve` over a data folder; yield its address and its process."""
    command = [sys.executable, "-m", "server.cli", "serve", "--no-runner", "--port", "0"]
    environment = os.environ | {
        "AUTOTUNE_DATA_DIR": str(data_dir),
        "AUTOTUNE_CONFIG": str(data_dir / "no-config.toml"),
    }
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            said = next(line for line in process.stderr if "http://" in line)
            url = next(word for word in said.split() if word.startswith("http://"))
            yield url, psutil.Process(process.pid)
        finally:
            process.terminate()
