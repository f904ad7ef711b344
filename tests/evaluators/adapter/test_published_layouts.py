"""Layouts that vendors publish for models whose layers no pipeline divides: legal, predicted and
written (Megatron-Bridge 067f987, perf_recipes; torchtitan b5bcd76, benchmarks). Megatron-LM's own
validation at d98e8a64 accepts each of the layouts in letters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.cost_model import Parameters, estimate
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, capabilities_of_adapter, start_of
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.rules import findings
from search_spaces.strategy import Strategy

LLAMA_405B: dict[str, Any] = {
    "tensor_parallel": 4,
    "pipeline_parallel": 16,
    "virtual_stages": 4,
    "sequence_parallel": True,
}
TORCHTITAN_405B = LLAMA_405B | {
    "tensor_parallel": 8,
    "pipeline_parallel": 8,
    "virtual_stages": 2,
    "zero_stage": 3,
}
DEEPSEEK: dict[str, Any] = {
    "tensor_parallel": 2,
    "pipeline_parallel": 8,
    "virtual_stages": 4,
    "sequence_parallel": True,
    "expert_parallel": 64,
}
DEEPSEEK_GB200 = DEEPSEEK | {
    "tensor_parallel": 1,
    "pipeline_parallel": 4,
    "sequence_parallel": False,
}
QWEN = DEEPSEEK_GB200 | {"pipeline_parallel": 8, "virtual_stages": 3, "expert_parallel": 32}
ENDS = ("first_stage_less_layers = 1", "last_stage_less_layers = 1")


@pytest.mark.parametrize(
    ("adapter", "model", "machine", "nodes", "layout", "fullest", "written"),
    [
        ("megatron-lm", "llama-3.1-405b", "dgx-h100", 128, LLAMA_405B, 8, ["Et|(tt|)*62tL"]),
        ("megatron-bridge", "llama-3.1-405b", "dgx-h100", 128, LLAMA_405B, 8, ["'Et|(tt|)*62tL'"]),
        ("megatron-lm", "deepseek-v3", "dgx-h100", 128, DEEPSEEK, 8, ["Et|(tt|)*30mL"]),
        ("megatron-bridge", "deepseek-v3", "dgx-h100", 128, DEEPSEEK, 8, ["'Et|(tt|)*30mL'"]),
        ("megatron-bridge", "deepseek-v3", "gb200-nvl72", 64, DEEPSEEK_GB200, 16,
         ["'Etttt|(tttt|)*14tmL'"]),
        ("megatron-bridge", "qwen3-235b-a22b", "gb200-nvl72", 64, QWEN, 12,
         ["'Ettt|(tttt|)*22tttL'"]),
        ("torchtitan-0.2", "llama-3.1-405b", "dgx-h100", 64, TORCHTITAN_405B, 16,
         ["layers_per_stage = 8", *ENDS]),
        ("torchtitan-0.2", "llama-3.1-405b", "dgx-h100", 64,
         TORCHTITAN_405B | {"virtual_stages": 1}, 16,
         ["layers_per_stage = 16", *ENDS]),
    ],
)  # fmt: skip
def test_published_layouts_of_uneven_stages(
    adapter: str,
    model: str,
    machine: str,
    nodes: int,
    layout: dict[str, Any],
    fullest: int,
    written: list[str],
) -> None:
    plain: dict[str, Any] = {"micro_batch_size": 1, "zero_stage": 1, "precision": "bf16"}
    strategy = Strategy(num_nodes=nodes, gradient_accumulation_steps=32, **plain | layout)
    program = load_adapter(adapter)
    can = capabilities_of_adapter(program)
    transformer, gpus = load_model(model), load_machine(machine)
    found = findings(strategy, transformer, gpus, program=can)
    assert [each.reason for each in found if each.severity == "refuse"] == []
    lattice = Lattice.of([strategy], gpus_per_node=gpus.gpus_per_node)
    constants = Parameters.default(gpus, can.tuning, can.states)
    predicted = estimate(transformer, gpus, lattice, parameters=constants)
    even = estimate(
        transformer.with_layers(fullest * strategy.pipeline_parallel),
        gpus,
        lattice,
        parameters=constants,
    )
    matrices = [float(each.time_parts_s["matrix_multiplication"][0]) for each in (predicted, even)]
    assert matrices[0] == pytest.approx(matrices[1], rel=0.01)
    assert np.all(predicted.memory_gib <= even.memory_gib)
    plan = StartPlan(transformer=transformer, machine=gpus, strategy=strategy, iterations=4)
    start = start_of(program, plan)
    text = "\n".join([*start.words, *start.files.values()])
    assert [each for each in written if each not in text] == []
