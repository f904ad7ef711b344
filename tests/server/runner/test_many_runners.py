"""Runners on one PostgreSQL, any of which is killed at random, share what there is to do.

With `AUTOTUNE_RUNNER_KILLS=40` in the environment it is as many kills of four runners over 200
campaigns.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text

from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import Trial
from server.settings import Settings
from server.store import Store
from server.store.runners import living_runners
from server.store.tables import CampaignRow, EventRow
from server.store.trials import all_trials
from tests.patience import PATIENCE_S
from tests.server import postgres
from tests.server.asking import created, read

FULL_KILLS = int(os.environ.get("AUTOTUNE_RUNNER_KILLS", "0"))
KILLS = FULL_KILLS or 1
CAMPAIGNS = 200 if FULL_KILLS else 9
RUNNERS = 4 if FULL_KILLS else 3
SEED = 12
LONGEST_S = 480.0 + 5.0 * CAMPAIGNS
TRIALS = 2
QUESTION: dict[str, Any] = {
    "budget": {"max_trials": TRIALS},
    "protocol": {"confirmations": 0},
    "baseline": "none",
    "time_scale": 0.01,
}
NAMED = "autotune-runner-test"


class RunnerProcess:
    """A runner that may be killed at any moment, and is started again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.log = settings.data_dir / "runner.log"
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "server.runner"],
                env=os.environ | self._settings.environment() | {"OMP_NUM_THREADS": "1"},
                stdout=output,
                stderr=output,
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_S)


class Watched:
    """What is seen of campaigns while runners come and go."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = Store(settings.url)
        self.store.upgrade()
        settings.trials_dir.mkdir(parents=True)
        self.campaigns: list[int] = []
        self.ended: dict[str, Trial] = {}
        self.owners: set[str] = set()
        self.connections = 0

    def ask(self) -> None:
        """Create the campaigns once all runners live: the first one could end a few by itself."""
        ends = time.monotonic() + LONGEST_S
        while self.living() < RUNNERS:
            assert time.monotonic() < ends, f"{self.living()} of {RUNNERS} runners"
            time.sleep(0.05)
        self.campaigns += [created(self.store, seed=n, **QUESTION).id for n in range(CAMPAIGNS)]

    def living(self) -> int:
        return len(read(self.store, living_runners, silent_s=60.0))

    def look(self) -> int:
        """Note what has ended, and that it stays as it is; the number of unfinished campaigns."""
        with self.store.session() as session:
            trials = [trial for each in self.campaigns for trial in all_trials(session, each)]
            self.owners |= {
                each for each in session.scalars(select(CampaignRow.lease_owner)) if each
            }
            connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = :name"
            now = session.scalar(text(connected), {"name": NAMED}) or 0
            unfinished = select(func.count()).where(CampaignRow.state != CampaignState.DONE)
            left = session.scalar(unfinished) or 0
        for trial in trials:
            if trial.state is TrialState.PENDING:
                assert trial.token not in self.ended, "a finished trial was lost"
            else:
                assert self.ended.setdefault(trial.token, trial) == trial, "a finished one changed"
        self.connections = max(self.connections, now)
        return left

    def events(self) -> int:
        with self.store.session() as session:
            return session.scalar(select(func.count(EventRow.id))) or 0


@pytest.fixture
def watched(postgres_url: str, tmp_path: Path) -> Iterator[Watched]:
    url = postgres.emptied(postgres_url)
    settings = Settings(data_dir=tmp_path / "data", database_url=url, poll_interval_s=0.1)
    found = Watched(settings)
    yield found
    found.store.close()


@pytest.mark.soak
@pytest.mark.timeout(LONGEST_S + 60.0)
def test_runners_share_campaigns_and_any_may_be_killed(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGAPPNAME", NAMED)
    rng = random.Random(SEED)
    runners = [RunnerProcess(watched.settings) for _ in range(RUNNERS)]
    ends, kills, events = time.monotonic() + LONGEST_S, 0, 0
    try:
        watched.ask()
        while watched.look() or kills < KILLS:
            assert time.monotonic() < ends, f"{watched.look()} unfinished after {kills} kills"
            happened = watched.events() > events + CAMPAIGNS
            if kills < KILLS and (happened or not watched.look()):
                victim = rng.choice(runners)
                victim.kill()
                victim.start()
                kills, events = kills + 1, watched.events()
            time.sleep(0.3)  # a look takes a tenth of a second of a core
    finally:
        for runner in runners:
            runner.stop()
    assert len(watched.ended) == CAMPAIGNS * TRIALS
    folders = {path.name for path in watched.settings.trials_dir.iterdir()}
    assert folders == watched.ended.keys()
    assert {trial.state for trial in watched.ended.values()} <= {TrialState.OK, TrialState.OOM}
    with watched.store.session() as session:
        held = select(CampaignRow.id).where(CampaignRow.lease_owner.is_not(None))
        assert session.scalars(held).all() == []
    assert watched.living() == 0
    assert watched.connections <= 2 * RUNNERS
    assert len(watched.owners) > KILLS + 1, "one runner, and those that took its place, had all"
