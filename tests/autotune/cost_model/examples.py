"""Models, machines and strategies that the tests of the cost model share."""

from __future__ import annotations

from typing import Any

from autotune.cost_model import Estimate, Parameters, estimate
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

FRONTIER = load_machine("frontier")
GPT_22B = load_model("gpt-22b")
GPT_175B = load_model("gpt-175b")
LLAMA = load_model("llama-3-8b")

CPU = Machine(
    name="laptop",
    description="four processes on a CPU",
    gpu="CPU process",
    gpus_per_node=4,
    max_nodes=1,
    memory_gib=1.0,
    peak_tflops=None,
    memory_bandwidth_gb_per_s=10.0,
    intra_node_gb_per_s=1.0,
    inter_node_gb_per_s=1.0,
)


def strategy(**changes: Any) -> Strategy:
    """A layout of 22B on two nodes of Frontier, with some dimensions changed."""
    plain: dict[str, Any] = {
        "tensor_parallel": 2,
        "pipeline_parallel": 4,
        "micro_batch_size": 2,
        "gradient_accumulation_steps": 16,
        "zero_stage": 1,
        "num_nodes": 2,
        "precision": "fp16",
    }
    return Strategy(**(plain | changes))


def cost(
    *strategies: Strategy,
    transformer: Transformer = GPT_22B,
    machine: Machine = FRONTIER,
    parameters: Parameters | None = None,
) -> Estimate:
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    return estimate(transformer, machine, lattice, parameters=parameters)
