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
from server.settings import Settings
from server.store.events import last_event_id
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
        """Let a trial start and end in the campaign."""
        self._made.finish(self.campaign, self._made.start(self.campaign, self._strategies))


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
