"""What the adapter of Megatron-Bridge sets, against NVIDIA's own recipes for four models on two
machines. Each difference is deliberate, and its reason stands in docs/trainer.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, TrainerStart, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy

PAGE = (Path(__file__).parents[3] / "docs" / "trainer.md").read_text("utf-8")
ENVIRONMENT = {
    "$TORCH_NCCL_HIGH_PRIORITY": "1",
    "$TORCH_NCCL_AVOID_RECORD_STREAMS": "1",
    "$NCCL_GRAPH_REGISTER": "0",
    "$NCCL_NVLS_ENABLE": "0",
    "$PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "$NVTE_FWD_LAYERNORM_SM_MARGIN": "20",
    "$NVTE_BWD_LAYERNORM_SM_MARGIN": "20",
}
COMMON = ENVIRONMENT | {
    "train.manual_gc": "true",
    "train.manual_gc_interval": "100",
    "model.cross_entropy_loss_fusion": "true",
    "model.cross_entropy_fusion_impl": "te",
    "ddp.average_in_collective": "true",
    "ddp.grad_reduce_in_fp32": "false",
    "ddp.check_for_nan_in_grad": "false",
    "ddp.overlap_grad_reduce": "true",
    "ddp.overlap_param_gather": "true",
}
OF_EXPERTS = {
    "model.moe_router_fusion": "true",
    "model.moe_permute_fusion": "true",
    "model.moe_grouped_gemm": "true",
    "model.moe_router_force_load_balancing": "true",
}
HYBRID_EP = {
    "model.moe_token_dispatcher_type": "flex",
    "model.moe_flex_dispatcher_backend": "hybridep",
}
WITH_OPTIMIZER = {"optimizer.overlap_param_gather_with_optimizer_step": "true"}
BEHIND_EXPERTS = {
    "model.overlap_moe_expert_parallel_comm": "true",
    "model.delay_wgrad_compute": "true",
}
GRAPHS = {
    "model.cuda_graph_impl": "transformer_engine",
    "model.cuda_graph_modules": "[attn,moe_router,moe_preprocess]",
}
CHUNKS = {"$NCCL_P2P_NET_CHUNKSIZE": "2097152"}
DETERMINISTIC = {"$NVTE_ALLOW_NONDETERMINISTIC_ALGO": "0"}
OF_LLAMA = COMMON | CHUNKS | WITH_OPTIMIZER | {"model.tp_comm_overlap": "true"}
LLAMA = {"pipeline_parallel": 8, "virtual_stages": 2, "sequence_parallel": True}
RECIPES: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
    (
        "llama-3.1-405b",
        "dgx-h100",
        {**LLAMA, "tensor_parallel": 8, "context_parallel": 2, "num_nodes": 128},
        OF_LLAMA | {"$CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    (
        "llama-3.1-405b",
        "gb200-nvl72",
        {**LLAMA, "tensor_parallel": 4, "pipeline_parallel": 16, "num_nodes": 64},
        OF_LLAMA | {"$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
    (
        "qwen3-235b-a22b",
        "dgx-h100",
        {"tensor_parallel": 2, "pipeline_parallel": 8, "expert_parallel": 32, "num_nodes": 32}
        | {"virtual_stages": 4, "sequence_parallel": True},
        COMMON
        | OF_EXPERTS
        | WITH_OPTIMIZER
        | BEHIND_EXPERTS
        | {
            "model.moe_token_dispatcher_type": "alltoall",
            "$CUDA_DEVICE_MAX_CONNECTIONS": "8",
            "$NVTE_FWD_LAYERNORM_SM_MARGIN": "16",
            "$NVTE_BWD_LAYERNORM_SM_MARGIN": "16",
        },
    ),
    (
        "qwen3-235b-a22b",
        "gb200-nvl72",
        {"pipeline_parallel": 8, "expert_parallel": 8, "num_nodes": 64},
        COMMON | OF_EXPERTS | HYBRID_EP | GRAPHS | {"$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
    (
        "deepseek-v3",
        "dgx-h100",
        {"tensor_parallel": 2, "pipeline_parallel": 8, "expert_parallel": 64, "num_nodes": 128}
        | {"virtual_stages": 4, "sequence_parallel": True},
        COMMON
        | OF_EXPERTS
        | HYBRID_EP
        | WITH_OPTIMIZER
        | DETERMINISTIC
        | {"ddp.overlap_grad_reduce": "false", "$CUDA_DEVICE_MAX_CONNECTIONS": "1"},
    ),
    (
        "deepseek-v3",
        "gb200-nvl72",
        {"pipeline_parallel": 4, "virtual_stages": 4, "expert_parallel": 64, "num_nodes": 64},
        COMMON
        | OF_EXPERTS
        | HYBRID_EP
        | GRAPHS
        | WITH_OPTIMIZER
        | DETERMINISTIC
        | {"$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
    (
        "gpt-oss-120b",
        "dgx-h100",
        {"pipeline_parallel": 4, "expert_parallel": 8, "num_nodes": 8},
        COMMON
        | OF_EXPERTS
        | {"model.moe_token_dispatcher_type": "alltoall"}
        | {"ddp.average_in_collective": "false", "$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
    (
        "gpt-oss-120b",
        "gb200-nvl72",
        {"expert_parallel": 64, "num_nodes": 16},
        COMMON
        | OF_EXPERTS
        | BEHIND_EXPERTS
        | {"model.moe_token_dispatcher_type": "alltoall"}
        | {"ddp.average_in_collective": "false", "$CUDA_DEVICE_MAX_CONNECTIONS": "32"},
    ),
]
"""Model, machine, layout and switches in bf16 of perf_recipes in Megatron-Bridge 067f987d, with the
recipes that they begin from."""

DELIBERATE = {
    "ddp.average_in_collective",
    "ddp.check_for_nan_in_grad",
    "ddp.grad_reduce_in_fp32",
    "ddp.overlap_grad_reduce",
    "model.cross_entropy_fusion_impl",
    "model.cuda_graph_impl",
    "model.cuda_graph_modules",
    "model.delay_wgrad_compute",
    "model.moe_flex_dispatcher_backend",
    "model.moe_token_dispatcher_type",
    "model.overlap_moe_expert_parallel_comm",
    "optimizer.overlap_param_gather_with_optimizer_step",
    "$CUDA_DEVICE_MAX_CONNECTIONS",
    "$NVTE_ALLOW_NONDETERMINISTIC_ALGO",
    "$NVTE_BWD_LAYERNORM_SM_MARGIN",
    "$NVTE_FWD_LAYERNORM_SM_MARGIN",
}


def _start(model: str, machine: str, layout: dict[str, Any]) -> TrainerStart:
    whole = {"tensor_parallel": 1, "pipeline_parallel": 1, "micro_batch_size": 1, "zero_stage": 1}
    strategy = Strategy(**{**whole, "gradient_accumulation_steps": 32, **layout})
    plan = StartPlan(
        transformer=load_model(model),
        machine=load_machine(machine),
        strategy=strategy,
        iterations=8,
    )
    return start_of(load_adapter("megatron-bridge"), plan)


def _differences(start: TrainerStart, recipe: dict[str, str]) -> set[str]:
    words = dict(word.partition("=")[::2] for word in start.words if "=" in word)
    ours = words | {f"${name}": value for name, value in start.variables.items()}
    return {name for name, value in recipe.items() if ours.get(name) != value}


@pytest.mark.parametrize(("model", "machine", "layout", "recipe"), RECIPES)
def test_only_deliberate_differences_from_the_recipes(
    model: str, machine: str, layout: dict[str, Any], recipe: dict[str, str]
) -> None:
    assert _differences(_start(model, machine, layout), recipe) <= DELIBERATE


def test_every_deliberate_difference_is_one_and_has_a_reason() -> None:
    found = set()
    for model, machine, layout, recipe in RECIPES:
        found |= _differences(_start(model, machine, layout), recipe)
    assert found == DELIBERATE
    table = PAGE[PAGE.index("| the recipes set |") : PAGE.index("## Launch files")]
    told = set(re.findall(r"`([$\w.]+)`", table))
    assert {name.rpartition(".")[2].lstrip("$") for name in DELIBERATE} <= told
