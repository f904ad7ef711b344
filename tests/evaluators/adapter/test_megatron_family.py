"""The ready adapters of trainers on Megatron Core and of Megatron-DeepSpeed: what they write comes
back as the same strategy, by names known from each trainer's sources."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from evaluators.frameworks.deepspeed import deepspeed_config
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.adapter.megatron_lm import (
    answers,
    answers_of_bridge,
    layers_of_arguments,
    precision_of,
    recomputed,
)
from tests.evaluators.adapter.random_strategies import (
    batches_of,
    random_strategies,
    two_accumulations,
)
from tests.evaluators.frameworks.readers import strategy_of

FRONTIER = load_machine("frontier")
GPT, LLAMA = load_model("gpt-22b"), load_model("llama-3-70b")
GPT_175B, GPT_1T = load_model("gpt-175b"), load_model("gpt-1t")
OF_EXPERTS = [load_model(name) for name in ("qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b")]
HYBRID = [load_model(name) for name in ("nemotron-h-8b", "nemotron-3-nano-30b-a3b")]
RECOMPUTATION = ("recompute_granularity", "recompute_modules")
FORMAT = ("bf16", "fp16", "fp8", "fp8_recipe", "fp4")
SHARDED = {"optim_grads": 2, "optim_grads_params": 3}
"""Megatron-FSDP's words -> the ZeRO stage that shards the same."""


def _start(adapter: Adapter, strategy: Strategy) -> TrainerStart:
    plan = StartPlan(transformer=LLAMA, machine=FRONTIER, strategy=strategy, iterations=8)
    return start_of(adapter, plan)


def _of_bridge(start: TrainerStart, num_nodes: int) -> Strategy:
    """Megatron-Bridge 0.7.0, commit 067f987d: scripts/training/run_recipe.py, whose words are
    KEY=VALUE for the fields of `ConfigContainer`, in Hydra's grammar."""
    given = [word.partition("=") for word in start.words if "=" in word]
    config = defaultdict[str, Any](
        lambda: None, {name: yaml.safe_load(value) for name, _, value in given}
    )
    if config["ddp.use_megatron_fsdp"]:
        assert start.variables["CUDA_DEVICE_MAX_CONNECTIONS"] != "1"  # it refuses that
    config["model.context_parallel_size"] = config["model.context_parallel_size"] or 1
    config["model.expert_model_parallel_size"] = 1
    parts = ("tensor_model", "pipeline_model", "context")
    cut = prod(config[f"model.{part}_parallel_size"] for part in parts)
    config["data_parallel_size"] = num_nodes * FRONTIER.gpus_per_node // cut
    precision = config["mixed_precision"].removesuffix("_mixed")
    return replace(_strategy_of_recipe(config), precision=precision)


BRIDGE = "AUTOTUNE_MEGATRON_BRIDGE"
"""Names a checkout of Megatron-Bridge with Megatron-LM in its 3rdparty, and torch and hydra-core in
its .venv."""


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "wanted"),
    [(LLAMA, 80), (GPT, 60), *((each, 30) for each in (GPT_175B, GPT_1T, *OF_EXPERTS, *HYBRID))],
    ids=lambda each: each.name if isinstance(each, Transformer) else str(each),
)
def test_strategies_return_from_validation_by_megatron_bridge(
    model: Transformer, wanted: int
) -> None:
    checkout = os.environ.get(BRIDGE, "")
    if not checkout:
        pytest.skip(f"{BRIDGE} names no checkout")
    adapter = load_adapter("megatron-bridge")
    strategies = random_strategies(adapter, model, FRONTIER, wanted)
    requests = []
    for strategy in strategies:
        plan = StartPlan(transformer=model, machine=FRONTIER, strategy=strategy, iterations=8)
        start = start_of(adapter, plan)
        ranks = strategy.world_size(FRONTIER.gpus_per_node)
        words, variables = start.words[2:], start.variables
        requests.append({"words": words, "variables": variables, "world_size": ranks})
    answered = answers_of_bridge(checkout, requests)
    for strategy, config in zip(strategies, answered, strict=True):
        assert "error" not in config, (strategy.short(), config["error"])
        assert _strategy_of_recipe(config) == strategy
        replicas = strategy.data_parallel(FRONTIER.gpus_per_node) * strategy.context_parallel
        gathered = replicas > 1 and strategy.zero_stage > 0
        assert config["ddp.overlap_grad_reduce"] is (replicas > 1)
        assert config["ddp.overlap_param_gather"] is gathered
        assert config["optimizer.overlap_param_gather"] is gathered
        assert bool(config["model.overlap_p2p_comm"]) is (strategy.virtual_stages > 1)
        assert config["train.manual_gc"]
        assert config["model.cross_entropy_loss_fusion"]
        assert config["model.cross_entropy_fusion_impl"] == "native"
        assert {name: config[name] for name in _fusions(model)} == _fusions(model)
        assert {name: config[name] for name in _shape_of_recipe(model)} == _shape_of_recipe(model)
        layers = layers_of_arguments(_layers_of_recipe(config))
        assert layers == {name: getattr(model, name) for name in layers}


def _strategy_of_recipe(config: Mapping[str, Any]) -> Strategy:
    """Return what Megatron-Bridge would train with its configuration."""
    zero = int(config["ddp.use_distributed_optimizer"])
    assert config["optimizer.use_distributed_optimizer"] == config["ddp.use_distributed_optimizer"]
    if config["ddp.use_megatron_fsdp"]:
        zero = SHARDED[config["ddp.data_parallel_sharding_strategy"]]
    tensor, pipeline = (config[f"model.{n}_model_parallel_size"] for n in ("tensor", "pipeline"))
    context = config["model.context_parallel_size"]
    ranks = tensor * pipeline * context * config["data_parallel_size"]
    batch = config["train.micro_batch_size"] * config["data_parallel_size"]
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=config["train.micro_batch_size"],
        gradient_accumulation_steps=config["train.global_batch_size"] // batch,
        zero_stage=zero,
        num_nodes=ranks // FRONTIER.gpus_per_node,
        activation_checkpointing=recomputed({n: config[f"model.{n}"] for n in RECOMPUTATION}),
        sequence_parallel=config["model.sequence_parallel"],
        virtual_stages=config["model.virtual_pipeline_model_parallel_size"] or 1,
        precision=precision_of({n: config[f"model.{n}"] for n in FORMAT}),
        context_parallel=context,
        expert_parallel=config["model.expert_model_parallel_size"],
        expert_tensor_parallel=config["model.expert_tensor_parallel_size"]
        if config["model.num_moe_experts"]
        else 1,
    )


def _shape_of_recipe(model: Transformer) -> dict[str, Any]:
    """Return the model in Megatron-Bridge's words."""
    return {
        "model.num_layers": model.num_layers,
        "model.hidden_size": model.hidden_size,
        "model.ffn_hidden_size": model.ffn_hidden_size,
        "model.num_attention_heads": model.num_attention_heads,
        "model.num_query_groups": model.num_query_groups,
        "model.seq_length": model.seq_length,
        "model.gated_linear_unit": model.gated_mlp,
        "model.share_embeddings_and_output_weights": model.tied_embeddings,
        "tokenizer.vocab_size": model.vocab_size,
        "train.train_iters": 8,
    }


def _fusions(model: Transformer) -> dict[str, bool]:
    """Return the fusions that its recipes of models of this kind have, or cannot have."""
    biased = model.experts is not None and model.experts.biases
    fusions = {
        "model.bias_dropout_fusion": not biased,
        "model.bias_activation_fusion": (model.has_biases or model.gated_mlp) and not biased,
    }
    if model.mamba is not None:
        return fusions | {"model.apply_rope_fusion": False, "model.use_mamba_mem_eff_path": True}
    if model.has_biases:  # learned positions
        return fusions
    yarn = model.details is not None and model.details.rotary_scaling == "yarn"
    return fusions | {"model.apply_rope_fusion": model.latent_attention is None or yarn}


def _layers_of_recipe(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what it says of layers, by Megatron-LM's names."""
    of_model = {name.removeprefix("model."): value for name, value in config.items()}
    return of_model | {"num_experts": of_model["num_moe_experts"]}


@pytest.mark.parametrize(("name", "back"), [("megatron-bridge", _of_bridge)])
def test_strategies_come_back(name: str, back: Callable[[TrainerStart, int], Strategy]) -> None:
    adapter = load_adapter(name)
    for strategy in random_strategies(adapter, LLAMA, FRONTIER, 50):
        assert back(_start(adapter, strategy), strategy.num_nodes) == strategy


DEEPSPEED = {
    "megatron-deepspeed": "AUTOTUNE_MEGATRON_DEEPSPEED",
    "megatron-deepspeed-alcf": "AUTOTUNE_MEGATRON_DEEPSPEED_ALCF",
}
"""The adapters of Megatron-DeepSpeed's lines -> the variable that names a checkout of it."""


@pytest.mark.parametrize("name", DEEPSPEED)
def test_strategies_come_back_from_megatron_deepspeed(name: str) -> None:
    adapter = load_adapter(name)
    for strategy in random_strategies(adapter, LLAMA, FRONTIER, 50):
        start = _start(adapter, strategy)
        words = start.words[start.words.index("--tokenizer-type") :]
        assert strategy_of(words, FRONTIER, num_nodes=strategy.num_nodes) == strategy
        if strategy.virtual_stages > 1:
            assert not start.files
            continue
        config = json.loads(start.files["ds_config.json"])
        replicas = strategy.data_parallel(FRONTIER.gpus_per_node)
        by_trials = deepspeed_config(LLAMA, strategy, data_parallel=replicas)
        # What is logged, and the size of buckets, are no part of the strategy; Megatron has its own
        # optimizer.
        for each in (config, by_trials):
            each.pop("steps_per_print")
            each["zero_optimization"].pop("reduce_bucket_size", None)
            each.pop("optimizer", None)
            each.pop("data_types", None)
        assert config == by_trials


@pytest.mark.parametrize("name", DEEPSPEED)
def test_strategies_return_from_validation_by_megatron_deepspeed(name: str, tmp_path: Path) -> None:
    checkout = os.environ.get(DEEPSPEED[name], "")
    if not checkout:
        pytest.skip(f"{DEEPSPEED[name]} names no checkout")
    adapter = load_adapter(name)
    strategies = random_strategies(adapter, LLAMA, FRONTIER, 200)
    plans = [
        StartPlan(transformer=LLAMA, machine=FRONTIER, strategy=strategy, iterations=8)
        for strategy in strategies
    ]
    twins = (two_accumulations(LLAMA, FRONTIER, strategy) for strategy in strategies)
    plans += [plan for plan in twins if plan is not None]
    requests = []
    for number, plan in enumerate(plans):
        start = start_of(adapter, replace(plan, out=str(tmp_path / str(number))))
        (tmp_path / str(number)).mkdir()
        for file, text in start.files.items():
            (tmp_path / str(number) / file).write_text(text)
        ranks = plan.strategy.world_size(FRONTIER.gpus_per_node)
        requests.append(
            {
                "words": start.words[start.words.index("--tokenizer-type") :],
                "variables": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
                "world_size": ranks,
            }
        )
    for plan, args in zip(plans, answers(checkout, requests), strict=True):
        strategy = plan.strategy
        assert "error" not in args, (strategy.short(), args["error"])
        assert not plan.first_accumulation or args["batches"] == batches_of(plan)
        batch = args["micro_batch_size"] * args["data_parallel_size"]
        full = args["deepspeed_activation_checkpointing"]
        found = Strategy(
            tensor_parallel=args["tensor_model_parallel_size"],
            pipeline_parallel=args["pipeline_model_parallel_size"],
            micro_batch_size=args["micro_batch_size"],
            gradient_accumulation_steps=args["global_batch_size"] // batch,
            zero_stage=args["zero_stage"]
            if args["deepspeed"]
            else int(args["use_distributed_optimizer"]),
            num_nodes=args["world_size"] // FRONTIER.gpus_per_node,
            activation_checkpointing="full" if full else args["recompute_granularity"] or "none",
            sequence_parallel=args["sequence_parallel"],
            flash_attention=args["use_flash_attn_v2"],
            virtual_stages=args["virtual_pipeline_model_parallel_size"] or 1,
            precision="bf16" if args["bf16"] else "fp16" if args["fp16"] else "fp32",
        )
        assert found == strategy
