"""From a REST call to the recommendation, with every trial on a real Ray cluster.

REST -> runner -> DeepHyper -> Ray -> the bundled trainer -> SQL -> REST.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from server.settings import Settings
from tests.cluster.ports import free_ports
from tests.evaluators.adapter.samples import my_script
from tests.patience import TRIAL_LIMIT_S
from tests.ray_nodes import RayNodes, ray_nodes
from tests.requirement import require
from tests.server.runner.test_slurm import QUESTION, SlurmService, quick

__all__ = ["ray_nodes"]

pytestmark = pytest.mark.xdist_group("ray")

MACHINE = QUESTION["machine"] | {"gpu": "none"}
ON_RAY = {key: value for key, value in QUESTION.items() if key != "slurm"} | {
    "evaluator": "ray",
    "machine": MACHINE,
    "baseline": "none",
    # Real ranks, each of which imports torch and DeepSpeed, on a machine that may be crowded.
    "protocol": QUESTION["protocol"] | {"confirmations": 0, "time_limit_s": TRIAL_LIMIT_S},
}

READ_FROM_A_FILE = (
    "log = 'peak (?P<mb>\\d+) MB'\n",
    'json_lines = "peaks.jsonl"\n',
)


class RayService(SlurmService):
    """The same, asked for trials on Ray."""

    def create(self, **changes: Any) -> Campaign:
        answer = self.refused_or_created(**changes)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def refused_or_created(self, **changes: Any) -> Any:
        return self.client.post("/api/v1/campaigns", json=ON_RAY | changes)

    def refused_or_planned(self, **changes: Any) -> Any:
        return self.client.post("/api/v1/campaigns?dry_run=true", json=ON_RAY | changes)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RayService]:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    own = f'[ray]\nfolder = "{tmp_path}"\n'
    (profiles / "trainer.toml").write_text(own)
    (profiles / "quick.toml").write_text(quick(tmp_path) + own)
    settings = Settings(
        data_dir=tmp_path / "data",
        profiles_dir=profiles,
        adapters_dir=tmp_path / "adapters",
    )
    found = RayService(settings)
    yield found
    found.close()


@pytest.mark.soak
@pytest.mark.timeout(400)
def test_a_campaign_trains_on_ray_and_recommends(service: RayService, ray_nodes: RayNodes) -> None:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    campaign = service.create(
        ray={"address": ray_nodes.address, "profile": "trainer"},
        space=QUESTION["space"] | {"num_nodes": 2},
        budget={"max_trials": 1},
    )
    campaign = service.until_state(campaign, "done")
    (trial,) = service.trials(campaign)
    assert trial.state == "ok", trial.error
    assert "iteration" in service.log(trial)
    assert service.recommendation(campaign).best.strategy == trial.strategy


def test_a_new_runner_finds_its_trials_on_ray(
    service: RayService, ray_nodes: RayNodes, tmp_path: Path
) -> None:
    hold = tmp_path / "Megatron-DeepSpeed" / "hold"
    hold.touch()
    choice = {"address": ray_nodes.address, "profile": "quick"}
    campaign = service.create(ray=choice, budget={"max_trials": 1})
    service.until(lambda: any(trial.phase == "running" for trial in service.trials(campaign)))
    service.restart_runner()
    hold.unlink()
    campaign = service.until_state(campaign, "done")
    (trial,) = service.trials(campaign)
    assert trial.state == "ok", trial.error
    assert len(list(service.settings.trial_dir(trial.token).glob("attempt-*"))) == 1


@pytest.mark.soak
def test_an_adapters_trainer_runs_on_two_nodes_and_files_return(
    service: RayService, ray_nodes: RayNodes, tmp_path: Path
) -> None:
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    my_script(adapters, change=READ_FROM_A_FILE)
    (adapters / "train.py").write_text(
        (adapters / "train.py").read_text()
        + "if rank == 0:\n"
        + "    with open(os.path.join(os.path.dirname(args.config), 'peaks.jsonl'), 'w') as file:\n"
        + "        file.write(json.dumps({'mb': 512, 'step': args.updates}))\n"
    )
    campaign = service.create(
        ray={"address": ray_nodes.address, "profile": "trainer"},
        adapter="my-script",
        space={"num_nodes": 2, "micro_batch_size": 1, "gradient_accumulation_steps": 1}
        | {"tensor_parallel": 1, "pipeline_parallel": 1, "zero_stage": 1},
        budget={"max_trials": 1},
    )
    campaign = service.until_state(campaign, "done")
    (trial,) = service.trials(campaign)
    assert trial.state == "ok", trial.error
    assert trial.versions["adapter"].startswith("my-script ")
    # Rank 0 had written it on the node where it ran.
    assert trial.peak_memory_gib_by_rank == [0.5]


def test_a_cluster_that_is_too_small_or_not_there_is_reported(
    service: RayService, ray_nodes: RayNodes
) -> None:
    """Before anything is queued; one that may come back is waited for."""
    answer = service.refused_or_created()
    assert "needs the address of a Ray cluster" in answer.text
    answer = service.refused_or_created(
        ray={"address": ray_nodes.address},
        nodes=4,
        pool_nodes=4,
        space=QUESTION["space"] | {"num_nodes": 4},
    )
    assert answer.status_code == 422
    assert "the Ray cluster has 3 nodes with 1 CPU each" in answer.text
    campaign = service.create(ray={"address": f"127.0.0.1:{free_ports(1)[0]}"})
    service.until(lambda: service.campaign(campaign).reason.startswith("Ray does not answer"))
    assert service.campaign(campaign).state == "queued"


@pytest.mark.soak
def test_nodes_that_are_not_there_are_waited_for(service: RayService, ray_nodes: RayNodes) -> None:
    """They were when the campaign was asked for; who asks now is told that they are not. It needs
    all nodes, so it never runs where an earlier trial of these tests has not given back its own."""
    fields = {
        "ray": {"address": ray_nodes.address, "profile": "quick"},
        "nodes": 3,
        "pool_nodes": 3,
        "space": QUESTION["space"] | {"num_nodes": 3},
        "budget": {"max_trials": 1},
    }
    campaign = service.create(**fields)
    ray_nodes.kill_node()
    try:
        ray_nodes.until_noticed()
        assert "the Ray cluster has 2 nodes" in service.refused_or_planned(**fields).text
        service.until(lambda: service.campaign(campaign).reason.startswith("waits for nodes"))
        assert service.campaign(campaign).state == "queued"
    finally:
        ray_nodes.start()
    campaign = service.until_state(campaign, "done")
    assert [trial.state for trial in service.trials(campaign)] == ["ok"]
