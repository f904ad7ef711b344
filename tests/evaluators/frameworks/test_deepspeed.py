"""DeepSpeed's configuration, of trials and of what is launched."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluators.frameworks.deepspeed import deepspeed_config
from search_spaces.catalog import load_model
from search_spaces.strategy import Strategy
from tests.evaluators.frameworks.strategies import BASE, GPUS, STRATEGIES

GPT = load_model("gpt-22b")


def config(strategy: Strategy) -> dict[str, Any]:
    return deepspeed_config(GPT, strategy, data_parallel=strategy.data_parallel(GPUS))


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_batch_identity_holds(name: str) -> None:
    strategy = STRATEGIES[name]
    settings = config(strategy)
    samples = settings["train_micro_batch_size_per_gpu"] * settings["gradient_accumulation_steps"]
    assert settings["train_batch_size"] == samples * strategy.data_parallel(GPUS)
    assert settings["zero_optimization"]["stage"] == strategy.zero_stage


@pytest.mark.parametrize("name", STRATEGIES)
def test_only_the_requested_precision_is_enabled(name: str) -> None:
    settings = config(STRATEGIES[name])
    enabled = [key for key in ("bf16", "fp16") if settings.get(key, {}).get("enabled")]
    precision = STRATEGIES[name].precision
    assert enabled == ([] if precision == "fp32" else [precision])


def test_fp16_starts_from_a_small_loss_scale() -> None:
    assert config(STRATEGIES["no model parallelism, ZeRO-3"])["fp16"]["initial_scale_power"] == 12


def test_the_trainers_gradients_without_zero_accumulate_in_bf16() -> None:
    unsharded = replace(BASE, zero_stage=0)
    assert config(unsharded)["data_types"] == {"grad_accum_dtype": "bf16"}
    assert "data_types" not in config(BASE)


def test_a_bucket_is_no_larger_than_what_a_rank_holds() -> None:
    tiny = load_model("tiny")
    small = deepspeed_config(tiny, BASE, data_parallel=1)
    least = tiny.parameters // (BASE.tensor_parallel * BASE.pipeline_parallel)
    assert least <= small["zero_optimization"]["reduce_bucket_size"] < 2 * tiny.parameters
    whole = replace(BASE, tensor_parallel=1, pipeline_parallel=1)
    assert config(whole)["zero_optimization"]["reduce_bucket_size"] == 500_000_000
