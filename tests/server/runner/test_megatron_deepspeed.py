"""Campaigns of Megatron-DeepSpeed itself, on CPUs, through a real Slurm.

AUTOTUNE_MEGATRON_DEEPSPEED names a checkout whose `megatron/data/helpers` was compiled, and
AUTOTUNE_MEGATRON_DEEPSPEED_PYTHON an interpreter that trains with it (docs/trainer.md says with
which packages). A campaign takes some ten minutes: a trial's imports alone take half a minute.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.choices import TrialState
from server.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.server.runner.test_slurm import QUESTION, VIRTUAL, SlurmService

__all__ = ["slurm"]

CHECKOUT = os.environ.get("AUTOTUNE_MEGATRON_DEEPSPEED", "")
PYTHON = os.environ.get("AUTOTUNE_MEGATRON_DEEPSPEED_PYTHON", "")

pytestmark = [
    pytest.mark.xdist_group("slurm-service"),
    pytest.mark.skipif(
        not (CHECKOUT and PYTHON),
        reason="AUTOTUNE_MEGATRON_DEEPSPEED and …_PYTHON name no checkout and its interpreter",
    ),
]

# The kernels of fused softmax are for GPUs alone.
PROFILE = """
python = "{python}"
{virtual}
[trainer]
adapter = "megatron-deepspeed"
folder = "{checkout}"

[trainer.set]
"--no-masked-softmax-fusion" = true

[environment.variables]
OMP_NUM_THREADS = "1"
TORCH_EXTENSIONS_DIR = "{extensions}"
"""
GPT: dict[str, Any] = {
    **QUESTION["model"],
    "name": "a small GPT",
    "num_layers": 4,
    "seq_length": 64,
}
MODELS: Mapping[str, dict[str, Any]] = {
    "GPT": GPT,
    "Llama with grouped queries": GPT
    | {
        "name": "a small Llama",
        "num_query_groups": 2,
        "ffn_hidden_size": 96,
        "gated_mlp": True,
        "tied_embeddings": False,
    },
}
SPACE: Mapping[str, Any] = {
    "tensor_parallel": [1, 2],
    "pipeline_parallel": [1, 2],
    "micro_batch_size": [1, 2],
    "gradient_accumulation_steps": 4,
    "zero_stage": [0, 1, 2],
    "num_nodes": 2,
    "precision": "bf16",
    "flash_attention": False,
    # DeepSpeed's own checkpointing wants streams, which a CPU has not.
    "activation_checkpointing": "none",
}
AT_REST = frozenset({"done", "paused", "failed", "cancelled"})


@pytest.fixture
def service(
    slurm: Cluster,  # noqa: ARG001 (its commands are those of this process now)
    tmp_path: Path,
) -> Iterator[SlurmService]:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    extensions = os.environ.get("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    profile = PROFILE.format(
        python=PYTHON, virtual=VIRTUAL, checkout=CHECKOUT, extensions=extensions
    )
    (profiles / "virtual.toml").write_text(profile)
    settings = Settings(data_dir=tmp_path / "data", profiles_dir=profiles)
    found = SlurmService(settings)
    yield found
    found.close()


@pytest.mark.parametrize("model", MODELS)
def test_all_trials_of_a_campaign_end_well(
    service: SlurmService, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the checkout has no kernels or words for is refused, or is no part of the space."""
    monkeypatch.setattr("tests.patience.PATIENCE_S", 3600.0)
    fields = QUESTION | {
        "model": MODELS[model],
        "space": SPACE,
        "pool_nodes": 2,
        "budget": {"max_trials": 8},
        "protocol": {
            "confirmations": 1,
            "measured_iterations": 3,
            "most_iterations": 6,
            "time_limit_s": 900.0,
        },
    }
    answer = service.client.post("/api/v1/campaigns?dry_run=true", json=fields)
    if answer.status_code == 422:
        reason = answer.json()["errors"][0]["reason"]
        assert "this checkout" in reason
        pytest.skip(f"{CHECKOUT}: {reason}")
    campaign = service.create(**fields)
    service.until(lambda: service.campaign(campaign).state in AT_REST)
    trials = service.trials(campaign)
    for trial in trials:
        times = [round(t, 3) for p in trial.accumulations for t in p.iteration_times_s]
        layout = trial.strategy.short()
        print(f"{trial.number} {trial.purpose}: {trial.state}, {layout}; {times} s; {trial.error}")
    assert {trial.state for trial in trials} == {TrialState.OK}
    assert service.campaign(campaign).state == "done"
    assert not service.recommendation(campaign).simulated
