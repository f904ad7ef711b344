from __future__ import annotations

import json

import pytest

from evaluators.launch.megatron_deepspeed.ds_config import ds_config, ds_config_json
from search_spaces.catalog import load_machine
from tests.evaluators.launch.strategies import STRATEGIES

FRONTIER = load_machine("frontier")


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_batch_identity_holds(name: str) -> None:
    strategy = STRATEGIES[name]
    config = ds_config(FRONTIER, strategy)
    replicas = strategy.data_parallel(FRONTIER.gpus_per_node)
    samples = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == samples * replicas
    assert config["zero_optimization"] == {"stage": strategy.zero_stage}


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_the_asked_precision_is_enabled(name: str) -> None:
    config = ds_config(FRONTIER, STRATEGIES[name])
    enabled = [key for key in ("bf16", "fp16") if config.get(key, {}).get("enabled")]
    precision = STRATEGIES[name].precision
    assert enabled == ([] if precision == "fp32" else [precision])


def test_fp16_starts_from_a_small_loss_scale() -> None:
    config = ds_config(FRONTIER, STRATEGIES["no model parallelism, ZeRO-3"])
    assert config["fp16"]["initial_scale_power"] == 12


def test_the_file_is_the_configuration_as_json() -> None:
    strategy = STRATEGIES["the defaults"]
    assert json.loads(ds_config_json(FRONTIER, strategy)) == ds_config(FRONTIER, strategy)
