"""Campaigns in every stage, read from a store as the service reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import FigureKind, TrialState
from server.figures.source import FigureSource, SpaceBelief
from server.settings import Settings
from server.store.campaigns import get_campaign
from server.store.trials import all_trials
from tests.server.dashboard.campaigns import Campaigns
from tests.server.figures.subjects import of_layouts


class Stages(Campaigns):
    """Campaigns by what has become of them."""

    def source(self, campaign: Campaign) -> FigureSource:
        with self.store.session() as session:
            read, trials = get_campaign(session, campaign.id), all_trials(session, campaign.id)
        return FigureSource(campaign=read, trials=trials, belief=SpaceBelief.of(read, trials))

    def crashed(self) -> Campaign:
        campaign = self.running(too_big=12)
        states = (TrialState.CRASHED, TrialState.TIMEOUT, TrialState.NODE_FAIL)
        started = self.start(campaign, self.strategies(campaign, len(states), fitting=True))
        for trial, state in zip(started, states, strict=True):
            self.end(campaign, trial, state, error=f"ended as {state.value}")
        return self.read(campaign)


@pytest.fixture(scope="session")
def stages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    with pytest.MonkeyPatch.context() as environment:
        folder = tmp_path_factory.mktemp("figures")
        environment.setenv("AUTOTUNE_CONFIG", str(folder / "no-config.toml"))
        made = Stages(Settings(data_dir=folder))
    yield made
    made.store.close()


@pytest.fixture(scope="session")
def done(stages: Stages) -> FigureSource:
    """A finished campaign, on two numbers of nodes."""
    fields: dict[str, Any] = {"space": {"tensor_parallel": [1, 2, 4, 8], "num_nodes": [2, 4]}}
    return stages.source(stages.done(ok=16, too_big=6, **fields))


@pytest.fixture(scope="session")
def tuned(stages: Stages) -> FigureSource:
    """A finished campaign of real trials that tried knobs."""
    return stages.source(stages.with_knobs())


@pytest.fixture
def finished(kind: FigureKind, done: FigureSource, tuned: FigureSource) -> FigureSource:
    """A campaign that has this kind of figure."""
    return tuned if kind == "knobs" else done


@pytest.fixture(scope="session")
def empty(stages: Stages) -> FigureSource:
    return stages.source(stages.create())


@pytest.fixture(scope="session")
def failed(stages: Stages) -> FigureSource:
    """Nothing but failures, of four kinds."""
    return stages.source(stages.crashed())


@pytest.fixture(scope="session")
def single(stages: Stages) -> FigureSource:
    """One trial, which ran."""
    return stages.source(stages.running(ok=1))


@pytest.fixture(scope="session")
def many() -> FigureSource:
    """More trials than there are lines or marks of failures in a figure; every fifth failed."""
    layouts = [{"micro_batch_size": size} for size in (1, 2, 4)]
    return of_layouts(*(layouts[n % 3] for n in range(900)), failing=5)
