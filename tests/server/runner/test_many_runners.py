"""Runners on one PostgreSQL never run a trial twice, also when one is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import Trial
from server.settings import Settings
from server.store import Store
from server.store.tables import CampaignRow
from server.store.trials import all_trials
from tests.patience import PATIENCE_S, until
from tests.server import postgres
from tests.server.asking import created, read

CAMPAIGNS, TRIALS = 4, 2
RUNNER = f"""
from server.pace import Pace
from server.runner.runner import run_until_stopped
from server.settings import Settings
run_until_stopped(Settings(), pace=Pace(round_s=0.1, most_campaigns={CAMPAIGNS // 2}))
"""
"""Half of the campaigns are for another runner."""


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Settings, Store]]:
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=postgres.emptied(postgres_url),
    )
    settings.trials_dir.mkdir(parents=True)
    store = Store(settings.url)
    store.upgrade()
    yield settings, store
    store.close()


def started(settings: Settings) -> subprocess.Popen[bytes]:
    environment = os.environ | settings.environment() | {"OMP_NUM_THREADS": "1"}
    with (settings.data_dir / "runner.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-c", RUNNER], env=environment, stdout=output, stderr=output
        )


@pytest.mark.soak
def test_a_killed_runners_campaigns_go_on_elsewhere(shared: tuple[Settings, Store]) -> None:
    settings, store = shared
    campaigns = [
        created(
            store,
            seed=seed,
            budget={"max_trials": TRIALS},
            protocol={"confirmations": 0},
            baseline="none",
            time_scale=0.01,
        ).id
        for seed in range(CAMPAIGNS)
    ]
    ended: dict[str, Trial] = {}

    def owners() -> set[str]:
        with store.session() as session:
            return {each for each in session.scalars(select(CampaignRow.lease_owner)) if each}

    def look() -> bool:
        """Return whether all campaigns are done; what has ended must stay as it is."""
        for trial in (trial for each in campaigns for trial in read(store, all_trials, each)):
            if trial.state is TrialState.PENDING:
                assert trial.token not in ended
            else:
                assert ended.setdefault(trial.token, trial) == trial
        with store.session() as session:
            states = set(session.scalars(select(CampaignRow.state)))
        return states == {CampaignState.DONE}

    runners = [started(settings), started(settings)]
    try:
        until(lambda: look() or len(owners()) == len(runners), "both runners claim campaigns")
        runners[0].kill()
        runners[0].wait()
        until(look, "the other runner ends them all", progress=lambda: len(ended))
    finally:
        for runner in runners:
            runner.terminate()
            runner.wait(PATIENCE_S)
    assert len(ended) == CAMPAIGNS * TRIALS
    assert {path.name for path in settings.trials_dir.iterdir()} == ended.keys()
    assert {trial.state for trial in ended.values()} <= {TrialState.OK, TrialState.OOM}
    assert owners() == set()
