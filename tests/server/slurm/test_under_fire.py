"""Trials while runner, controller, node and client are killed: none lost, none run twice."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.schemas import Campaign, CampaignState, TrialState
from evaluators.trial_files import read_result
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm, slurm_session
from tests.server.slurm.scene import RunnerProcess, Scene, until

__all__ = ["slurm", "slurm_session"]

pytestmark = pytest.mark.xdist_group("slurm-service")

WIDEST = (4, 1, 2, 4)
TRIALS_EACH = int(os.environ.get("AUTOTUNE_TRIALS_UNDER_FIRE", "40")) // len(WIDEST)
LIMIT_S = 420.0
SEED = 7


@pytest.fixture
def runner(slurm: Cluster, scene: Scene) -> Iterator[RunnerProcess]:  # noqa: ARG001
    process = RunnerProcess(scene.settings)
    yield process
    process.stop()


@pytest.fixture
def scene(slurm: Cluster, tmp_path: Path) -> Iterator[Scene]:  # noqa: ARG001
    scene = Scene.build(tmp_path)
    yield scene
    scene.store.close()


def ended(scene: Scene, campaigns: list[Campaign]) -> int:
    trials = [trial for each in campaigns for trial in scene.trials(each)]
    return sum(trial.state is not TrialState.PENDING for trial in trials)


@pytest.mark.timeout(600)
def test_trials_under_fire(scene: Scene, slurm: Cluster, runner: RunnerProcess) -> None:
    """Kills of the runner, two restarts of the controller, a node down, an sbatch killed.

    Forty of them; AUTOTUNE_TRIALS_UNDER_FIRE=200 takes some minutes.
    """
    chance = random.Random(SEED)
    campaigns = [scene.create(trials=TRIALS_EACH, seed=7, nodes=nodes) for nodes in WIDEST]
    whole = len(WIDEST) * TRIALS_EACH

    def come_to(share: float) -> None:
        def there() -> bool:
            paused = [c for c in map(scene.campaign, campaigns) if c.state is CampaignState.PAUSED]
            assert not paused, [campaign.reason for campaign in paused]
            return ended(scene, campaigns) >= share * whole

        until(there, LIMIT_S, f"{share:.0%} of trials")

    def kill_runner() -> None:
        time.sleep(chance.uniform(0.0, 3.0))
        runner.kill()
        runner.start()

    come_to(0.05)
    kill_runner()
    come_to(0.15)
    slurm.restart_controller()
    come_to(0.25)
    assert runner.kill_client("sbatch", limit_s=30.0), "no sbatch was seen in flight"
    come_to(0.35)
    slurm.down(slurm.nodes[2])
    kill_runner()
    come_to(0.5)
    slurm.resume(slurm.nodes[2])
    slurm.restart_controller()
    kill_runner()
    come_to(0.7)
    kill_runner()
    final = {CampaignState.DONE, CampaignState.PAUSED, CampaignState.FAILED}
    until(lambda: all(scene.campaign(c).state in final for c in campaigns), LIMIT_S, "the end")

    reasons = [scene.campaign(campaign).reason for campaign in campaigns]
    assert {scene.campaign(c).state for c in campaigns} == {CampaignState.DONE}, reasons
    trials = [trial for campaign in campaigns for trial in scene.trials(campaign)]
    assert Counter(trial.state for trial in trials) == {TrialState.OK: whole}
    assert len({trial.token for trial in trials}) == whole
    assert {trial.strategy.num_nodes for trial in trials} == {1, 2, 4}
    for trial in trials:
        result = read_result(scene.settings.trial_dir(trial.token))
        assert result is not None
        assert result.job_id == trial.job_id
        starts = scene.starts(trial)
        assert max(starts) == starts[-1] == 1, f"{trial.token} ran {starts} times"
    until(lambda: not slurm.jobs(), 10.0, "an empty queue")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["sbatch", "pilot"])
def test_campaigns_share_the_nodes_fairly(
    scene: Scene,
    slurm: Cluster,
    runner: RunnerProcess,  # noqa: ARG001
    mode: str,
) -> None:
    """None begins its last trial before every other has begun its first.

    None has a baseline: these take all nodes, and Slurm lets narrow trials of others pass them.
    """
    campaigns = [scene.create(trials=3, seed=n, mode=mode, baseline="none") for n in range(6)]
    done = CampaignState.DONE
    until(lambda: all(scene.campaign(c).state == done for c in campaigns), 200.0, "the end")
    trials = [trial for campaign in campaigns for trial in scene.trials(campaign)]
    assert {(trial.state, trial.error) for trial in trials} == {(TrialState.OK, None)}
    begun: Counter[int] = Counter()
    for trial in sorted(trials, key=lambda trial: trial.started_at or trial.created_at):
        begun[trial.campaign_id] += 1
        if len(begun) == len(campaigns):
            break
    assert max(begun.values()) < 3, begun
    until(lambda: not slurm.jobs(), 30.0, "an empty queue")
