"""Campaigns that share one cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from server.runner.runner import Runner
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.pace import UNHURRIED
from tests.patience import until
from tests.server.slurm.scene import Scene

__all__ = ["slurm"]

pytestmark = pytest.mark.xdist_group("slurm-service")


@pytest.fixture
def scene(slurm: Cluster, tmp_path: Path) -> Iterator[Scene]:  # noqa: ARG001
    scene = Scene.build(tmp_path)
    yield scene
    scene.store.close()


@pytest.fixture
def runner(scene: Scene) -> Iterator[Runner]:
    with closing(Runner(scene.settings, scene.store, pace=UNHURRIED)) as runner:
        yield runner


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["sbatch", "pilot"])
def test_campaigns_share_the_nodes_fairly(
    scene: Scene, slurm: Cluster, runner: Runner, mode: str
) -> None:
    """None begins its last trial before every other has begun its first."""
    campaigns = [scene.create(trials=3, seed=n, mode=mode) for n in range(4)]
    until(lambda: not runner.round() and scene.are_done(campaigns), "the end")
    trials = [trial for campaign in campaigns for trial in scene.trials(campaign)]
    assert {(trial.state, trial.error) for trial in trials} == {(TrialState.OK, None)}
    begun: Counter[int] = Counter()
    for trial in sorted(trials, key=lambda trial: trial.started_at or trial.created_at):
        begun[trial.campaign_id] += 1
        if len(begun) == len(campaigns):
            break
    assert max(begun.values()) < 3, begun
    until(lambda: not slurm.jobs(), "an empty queue")
