"""Models, machines and strategies that the tests of the cost model and its calibration share."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from autotune.cost_model import Estimate, Parameters, estimate
from autotune.cost_model.columns import Columns
from autotune.cost_model.strategies import Strategies
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

FRONTIER = load_machine("frontier")
DGX_A100 = load_machine("dgx-a100")
DGX_H100 = load_machine("dgx-h100")
GPT_22B = load_model("gpt-22b")
GPT_175B = load_model("gpt-175b")
LLAMA = load_model("llama-3-8b")
TINY = Transformer.gpt("tiny", num_layers=4, hidden_size=128, num_attention_heads=4)

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

GIB = 2.0**30

NO_LIMIT = 1e15
"""GB/s or similar of which nothing is ever short: more than a machine may have."""


def without_limit(machine: Machine, *names: str) -> Machine:
    """The machine with figures that are beyond what is plausible."""
    ideal = copy(machine)
    for name in names:
        object.__setattr__(ideal, name, NO_LIMIT)
    return ideal


# A busy machine takes its time now and then: that is no failure.
unhurried = settings(deadline=None, max_examples=40)

CHECKPOINTING = ("none", "selective", "full")


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


def columns(
    *strategies: Strategy,
    transformer: Transformer = GPT_22B,
    machine: Machine = FRONTIER,
    **changes: float,
) -> Columns:
    """Columns of one model, some of them (also what no search space has) set to one value.

    Each has a value for each strategy, also where all agree: tests pick results by their index.
    """
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    named = {**Columns.of(transformer, lattice).values, **changes}
    rows = len(strategies)
    spread = {name: np.broadcast_to(np.asarray(column), rows) for name, column in named.items()}
    return Columns.filled(spread, rows=rows)


def strategies_of(
    *strategies: Strategy,
    transformer: Transformer = GPT_22B,
    machine: Machine = FRONTIER,
    parameters: Parameters | None = None,
    **changes: float,
) -> Strategies:
    """What the terms of the cost model take."""
    chosen = columns(*strategies, transformer=transformer, machine=machine, **changes)
    return Strategies(chosen, machine, parameters or Parameters.default(machine))


def cost(
    *strategies: Strategy,
    transformer: Transformer = GPT_22B,
    machine: Machine = FRONTIER,
    parameters: Parameters | None = None,
) -> Estimate:
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    return estimate(transformer, machine, lattice, parameters=parameters)


def without_losses(machine: Machine) -> Parameters:
    """Constants of a machine that loses nothing: every operation at the peak, every byte at the
    data sheet's rate, no latency, nothing hidden."""
    return replace(
        Parameters.default(machine),
        gemm_efficiency=1.0,
        compute_units=1.0,
        gemm_depth=0.0,
        memory_efficiency=1.0,
        host_floor_s=0.0,
        intra_node_efficiency=1.0,
        inter_node_efficiency=1.0,
        collective_latency_s=0.0,
        pipeline_efficiency=1.0,
        pipeline_latency_s=0.0,
        data_parallel_efficiency=1.0,
        exposed_transfer=1.0,
        exposed_data_parallel=1.0,
        replica_step_s=0.0,
        straggling=0.0,
        optimizer_efficiency=1.0,
        step_overhead_s=0.0,
    )


def paper_bytes(machine: Machine) -> Parameters:
    """Constants that store what Korthikanti et al. count, and nothing besides."""
    return replace(
        Parameters.default(machine),
        activation_bytes=1.0,
        score_bytes=5.0,
        norm_bytes=0.0,
        fragmentation=0.0,
        context_gib=0.0,
        communicator_gib=0.0,
    )


models = st.builds(
    lambda name, layers, sequence: replace(
        load_model(name), num_layers=layers, seq_length=sequence
    ),
    name=st.sampled_from(["gpt-1.4b", "gpt-22b", "gpt-175b", "llama-3-8b", "llama-2-70b"]),
    layers=st.sampled_from([16, 32, 48, 96]),
    sequence=st.sampled_from([1024, 2048, 8192]),
)
"""Shapes of the catalog, deeper or shallower, with several sequence lengths."""

machines = st.sampled_from(
    [
        *map(load_machine, ("frontier", "dgx-a100", "dgx-h100", "perlmutter", "mi300x")),
        CPU,
    ]
)

strategies = st.builds(
    strategy,
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    pipeline_parallel=st.sampled_from([1, 2, 4, 8]),
    micro_batch_size=st.integers(1, 8),
    gradient_accumulation_steps=st.integers(1, 64),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    num_nodes=st.sampled_from([16, 32, 64]),
    activation_checkpointing=st.sampled_from(CHECKPOINTING),
    sequence_parallel=st.booleans(),
    flash_attention=st.booleans(),
    virtual_stages=st.sampled_from([1, 2]),
    precision=st.sampled_from(["fp16", "bf16", "fp32"]),
)
"""Strategies with whole stages and replicas on any of `machines`."""
