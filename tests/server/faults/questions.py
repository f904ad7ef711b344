"""Campaigns as they are asked of each backend: small, of trials that last a second or so."""

from __future__ import annotations

import random
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.evaluators.adapter.samples import MACHINE, MODEL, my_script
from tests.server.asking import body

PROFILE = """
python = "{python}"

[environment]
prologue = "unset LD_PRELOAD AUTOTUNE_CLOCK"  # nodes have a clock of their own

[slurm]
gpu_request = "none"

[trainer]
adapter = "{checkout}/quick.toml"

[polling]
interval_s = 0.5

[retries]
attempts = 6
node_failures = 4

[pilot]
nodes = 4
idle_release_s = 2

[ray]
folder = "{scratch}"
"""
TINY: dict[str, Any] = {
    "name": "tinier",
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "seq_length": 32,
    "vocab_size": 128,
}
ONE_RANK: dict[str, Any] = {
    "name": "virtual",
    "gpu": "none",
    "gpus_per_node": 1,
    "max_nodes": 8,
    "memory_gib": 1000.0,
    "peak_tflops": None,
    "memory_bandwidth_gb_per_s": 10.0,
    "intra_node_gb_per_s": 10.0,
    "inter_node_gb_per_s": 1.0,
}
SPACE: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "micro_batch_size": {"minimum": 1, "maximum": 16},
    "gradient_accumulation_steps": 4,
    "zero_stage": 0,
    "num_nodes": 1,
    "activation_checkpointing": "none",
    "flash_attention": False,
    "precision": "fp32",
}
PROTOCOL: dict[str, Any] = {
    "confirmations": 0,
    "measured_iterations": 1,
    "most_iterations": 1,
    "time_limit_s": 120.0,
}


def write_profile(profiles: Path, *, checkout: Path, scratch: Path) -> None:
    profiles.mkdir()
    text = PROFILE.format(python=sys.executable, checkout=checkout, scratch=scratch)
    (profiles / "quick.toml").write_text(text)


def write_adapter(adapters: Path) -> None:
    adapters.mkdir()
    my_script(adapters)


def simulated(chance: random.Random) -> dict[str, Any]:
    return body(
        time_scale=0.002,
        seed=chance.randrange(1000),
        budget={"max_trials": chance.randint(4, 16)},
        protocol={"confirmations": chance.randint(0, 2)},
    )


def local(chance: random.Random) -> dict[str, Any]:
    """A script, two ranks."""
    return body(
        model=asdict(MODEL),
        machine=asdict(MACHINE) | {"name": "local", "sources": []},
        nodes=1,
        pool_nodes=1,
        evaluator="local",
        adapter="my-script",
        space={
            "micro_batch_size": [1, 2, 4],
            "gradient_accumulation_steps": 4,
            "zero_stage": [0, 1],
        },
        seed=chance.randrange(1000),
        budget={"max_trials": chance.randint(1, 3)},
        protocol={"confirmations": chance.randint(0, 1), "measured_iterations": 10},
    )


def slurm(chance: random.Random) -> dict[str, Any]:
    mode = chance.choice(["sbatch", "pilot"])
    return _on_cluster(chance) | {"evaluator": "slurm", "slurm": {"profile": "quick", "mode": mode}}


def ray(chance: random.Random, address: str) -> dict[str, Any]:
    choice = {"address": address, "profile": "quick"}
    return _on_cluster(chance) | {"evaluator": "ray", "ray": choice}


def _on_cluster(chance: random.Random) -> dict[str, Any]:
    return body(
        model=TINY,
        machine=ONE_RANK,
        nodes=2,
        pool_nodes=3,
        space=SPACE | {"num_nodes": [1, 2]},
        seed=chance.randrange(1000),
        baseline=None if chance.random() < 0.5 else "none",
        budget={"max_trials": chance.randint(2, 6)},
        protocol=PROTOCOL,
    )
