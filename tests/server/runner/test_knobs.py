"""Planted knobs, found by real starts of the bundled trainer on each kind of machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import tests.planted
from autotune.schemas.campaigns import Campaign
from autotune.schemas.knobs import KnobFindings
from server.settings import Settings
from tests.cluster.fixtures import idle_cluster
from tests.ray_nodes import RayNodes, ray_nodes
from tests.requirement import require
from tests.server.runner.test_slurm import QUESTION, VIRTUAL, SlurmService

__all__ = ["ray_nodes"]

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("AUTOTUNE_PLANTED_KNOBS"),
        reason="minutes on an idle machine: AUTOTUNE_PLANTED_KNOBS",
    ),
]

PLANTED = {"PYTHONPATH": str(Path(tests.planted.__file__).parent), "DELAY_S": "1.0"}
KNOBS = """
[knob.short_delay]
meaning = "shortens the planted delay"
values = [false, true]
numerics = "identical"
set = { "$DELAY_S" = "0.3" }

[knob.time_zone]
meaning = "the time zone, which changes nothing"
values = ["default", "UTC"]
numerics = "identical"
set = { "$TZ" = "{time_zone}" }

[knob.precision]
meaning = "of the products, which changes the losses"
values = ["bf16", "fp32"]
numerics = "identical"

[knob.other_sign]
meaning = "slower at micro-batches of 1, faster at those of 2"
values = [false, true]
numerics = "identical"
reopens = true
set = { "$DELAY_AT_SIZE" = "2:0.1", "$DELAY_S" = "1.6" }
"""
MACHINE: dict[str, Any] = QUESTION["machine"]
NAMES = ["short_delay", "time_zone", "precision", "other_sign"]
ONE_LAYOUT: dict[str, Any] = QUESTION | {
    "nodes": 1,
    "pool_nodes": 1,
    "baseline": "none",
    "space": QUESTION["space"]
    | {
        "pipeline_parallel": 1,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "zero_stage": 0,
        "num_nodes": 1,
        "precision": "bf16",
    },
    "budget": {"max_trials": 1, "train_tokens": 3e6},
    "protocol": QUESTION["protocol"]
    | {"warmup_iterations": 1, "measured_iterations": 3, "most_iterations": 3},
    "knobs": NAMES,
    "knob_file": KNOBS,
}


class PlantedService(SlurmService):
    """Creates campaigns with planted knobs."""

    def create(self, **changes: Any) -> Campaign:
        fields = {name: each for name, each in ONE_LAYOUT.items() if name != "slurm"}
        answer = self.client.post("/api/v1/campaigns", json=fields | changes)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def _events(self) -> int:
        """Of the store, and what the running start prints: it may take long on a busy machine."""
        logs = self.settings.trials_dir.glob("**/trial.log")
        return super()._events() + sum(log.stat().st_size for log in logs)

    def findings(self, **changes: Any) -> KnobFindings:
        campaign = self.until_state(self.create(**changes), "done")
        found = self.recommendation(campaign)
        assert found.noise_floor
        assert found.knobs, [trial.error for trial in self.trials(campaign)]
        assert campaign.knob_starts == found.knobs.starts
        return found.knobs


@pytest.fixture
def service(tmp_path: Path) -> Iterator[PlantedService]:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    variables = "".join(f'{name} = "{value}"\n' for name, value in PLANTED.items())
    environment = f"[environment.variables]\n{variables}"
    (profiles / "virtual.toml").write_text(VIRTUAL + environment)
    (profiles / "ray.toml").write_text(f'[ray]\nfolder = "{tmp_path}"\n{environment}')
    found = PlantedService(Settings(data_dir=tmp_path / "data", profiles_dir=profiles))
    yield found
    found.close()


def check(found: KnobFindings) -> None:
    assert found.settings == {"short_delay": True}
    by_name = {result.knob: result for result in found.results}
    fast, nothing, losses, sign = (by_name[name] for name in NAMES)
    assert (fast.decision, fast.seen_in) == ("adopted", "time")
    assert (fast.gain or 0.0) > 0.5
    assert nothing.decision != "adopted"
    assert losses.decision == "rejected"
    assert "loss of step" in losses.why
    assert sign.sign_differs
    assert (sign.gain or 0.0) < 0.0 < (sign.gain_at_other_size or 0.0)
    assert found.reopened.startswith("At MBS 2 with other_sign = on")


def test_planted_knobs_on_this_machine(
    service: PlantedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**PLANTED, "CUDA_VISIBLE_DEVICES": ""}.items():
        monkeypatch.setenv(name, value)
    check(service.findings(evaluator="local", machine=MACHINE | {"name": "local", "max_nodes": 1}))


@pytest.mark.xdist_group("slurm-service")
def test_planted_knobs_in_an_allocation(service: PlantedService) -> None:
    with idle_cluster():
        check(service.findings(slurm={"profile": "virtual", "mode": "pilot"}))


@pytest.mark.xdist_group("ray")
def test_planted_knobs_on_ray(service: PlantedService, ray_nodes: RayNodes) -> None:
    check(
        service.findings(
            evaluator="ray",
            machine=MACHINE | {"gpu": "none"},
            ray={"address": ray_nodes.address, "profile": "ray"},
        )
    )
