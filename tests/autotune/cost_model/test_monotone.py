"""What physics demands of any machine, model and strategy: what never makes a step faster or
slower, and what memory never does."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model import Parameters, perturbed
from autotune.cost_model.memory import memory_parts
from autotune.cost_model.step_time import MicroBatch, time_parts
from autotune.cost_model.strategies import total
from search_spaces.catalog import load_machine, load_model, model_names
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    CPU,
    cost,
    machines,
    models,
    strategies,
    strategies_of,
    strategy,
    unhurried,
)

EXACT = 1.0 + 1e-9
"""Rounding apart."""

RATES = ("memory_bandwidth_gb_per_s", "intra_node_gb_per_s", "inter_node_gb_per_s", "peak_tflops")

FASTER = (
    "gemm_efficiency",
    "misaligned_gemm",
    "odd_gemm",
    "fp8_gain",
    "fp4_gain",
    "grouped_gemm",
    "all_to_all_efficiency",
    "flash_efficiency",
    "flash_1_efficiency",
    "misaligned_head",
    "fp32_rate",
    "nominal_tflops",
    "memory_efficiency",
    "intra_node_efficiency",
    "inter_node_efficiency",
    "pipeline_efficiency",
    "data_parallel_efficiency",
    "optimizer_efficiency",
)
"""Constants of which more is never slower."""

SLOWER = (
    "gemm_depth",
    "cast_bytes",
    "permutation_passes",
    "exposed_all_to_all",
    "expert_host",
    "expert_load",
    "score_traffic",
    "unfused_score_traffic",
    "host_floor_s",
    "tensor_parallel_host",
    "sharded_weights_host_s",
    "expert_module_s",
    "expert_launch_s",
    "collective_latency_s",
    "pipeline_latency_s",
    "exposed_transfer",
    "exposed_data_parallel",
    "exposed_tensor_parallel",
    "replica_step_s",
    "straggling",
    "step_overhead_s",
)
"""Constants of which more is never faster."""

TRAITS = {
    "selective_by_operation",
    "loss_tokens",
    "offloaded_inputs",
    "offloaded_states",
    "mlp_tokens",
    "recomputed_layers",
    "expert_loop",
    "waits_for_counts",
    "cuda_graphs",
    "uneven_routing",
    "fused_experts",
    "keeps_gathered",
    "longer_stages_first",
    "bf16_gradient_bytes",
    "cached_share",
}
"""What programs declare."""

LARGER = (
    "gradient_bytes",
    "full_gradient_bytes",
    "master_bytes",
    "moment_bytes",
    "fp8_weight_bytes",
    "gated_activation_bytes",
    "routing_imbalance",
    "activation_bytes",
    "norm_bytes",
    "score_bytes",
    "unfused_score_bytes",
    "logits_bytes",
    "context_gib",
    "communicator_gib",
    "fragmentation",
    "recomputed_layer",
)
"""Constants of which more never needs less memory."""

seeds = st.integers(0, 10_000)


@unhurried
@given(machines, models, strategies, seeds, st.sampled_from(RATES), st.floats(1.01, 10.0))
def test_a_better_machine_is_never_slower(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int, rate: str, more: float
) -> None:
    parameters = perturbed(Parameters.default(machine), seed=seed)
    before = getattr(machine, rate)
    if before is None:
        return
    better = replace(machine, **{rate: before * more})
    plain, faster = (
        cost(layout, transformer=transformer, machine=each, parameters=parameters)
        for each in (machine, better)
    )
    assert faster.iteration_time_s[0] <= plain.iteration_time_s[0] * EXACT


def test_every_constant_is_held_to_a_direction() -> None:
    named = {*FASTER, *SLOWER, *LARGER, *TRAITS, "usable_memory", "compute_units"}
    assert named == {constant.name for constant in fields(Parameters)}


@settings(unhurried, max_examples=20)
@given(machines, models, strategies, seeds, st.floats(1.01, 2.0))
def test_constants_pull_in_one_direction(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int, factor: float
) -> None:
    plain = perturbed(Parameters.default(machine), seed=seed)

    def with_more(name: str) -> Any:
        changed = replace(plain, **{name: getattr(plain, name) * factor})
        return cost(layout, transformer=transformer, machine=machine, parameters=changed)

    base = cost(layout, transformer=transformer, machine=machine, parameters=plain)
    for name in FASTER:
        assert with_more(name).iteration_time_s[0] <= base.iteration_time_s[0] * EXACT, name
    for name in SLOWER:
        assert with_more(name).iteration_time_s[0] >= base.iteration_time_s[0] / EXACT, name
    for name in LARGER:
        assert with_more(name).memory_gib[0] >= base.memory_gib[0] / EXACT, name


@unhurried
@given(machines, models, strategies, seeds)
def test_more_work_is_never_faster_nor_smaller(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int
) -> None:
    """More layers, longer sequences, larger micro-batches, more of them."""
    parameters = perturbed(Parameters.default(machine), seed=seed)
    base = cost(layout, transformer=transformer, machine=machine, parameters=parameters)
    deeper = replace(transformer, num_layers=transformer.num_layers + 8)
    longer = replace(transformer, seq_length=transformer.seq_length + 512)
    fuller = replace(layout, micro_batch_size=layout.micro_batch_size + 1)
    accumulated = replace(
        layout, gradient_accumulation_steps=layout.gradient_accumulation_steps + 1
    )
    for name, model, strategy_ in (
        ("layers", deeper, layout),
        ("sequence", longer, layout),
        ("micro-batch", transformer, fuller),
        ("accumulation", transformer, accumulated),
    ):
        more = cost(strategy_, transformer=model, machine=machine, parameters=parameters)
        assert more.iteration_time_s[0] >= base.iteration_time_s[0] / EXACT, name
        assert more.memory_gib[0] >= base.memory_gib[0] / EXACT, name


@unhurried
@given(machines, models, strategies, seeds)
def test_accumulation_never_costs_throughput(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int
) -> None:
    """What is paid once in a step is shared by more tokens: filling, optimizer, gradients."""
    parameters = perturbed(Parameters.default(machine), seed=seed)
    counts = np.array([1, 2, 3, 8, 64])
    chosen = [layout.with_accumulation(int(m)) for m in counts]
    costs = cost(*chosen, transformer=transformer, machine=machine, parameters=parameters)
    each = costs.iteration_time_s / counts
    assert (np.diff(each) <= each[:-1] * 1e-9).all()


@unhurried
@given(machines, models, strategies, seeds)
def test_recomputation_is_never_faster(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int
) -> None:
    """And keeps fewer activations: full no more than selective, selective no more than none."""
    parameters = perturbed(Parameters.default(machine), seed=seed)
    # At the first stage all three count the same micro-batches in flight.
    chosen = [
        replace(layout, activation_checkpointing=c, pipeline_parallel=1)
        for c in ("none", "selective", "full")
    ]
    costs = cost(*chosen, transformer=transformer, machine=machine, parameters=parameters)
    assert (np.diff(costs.iteration_time_s) >= -1e-9 * costs.iteration_time_s[0]).all()
    activations = costs.memory_parts_gib["activations"]
    assert (np.diff(activations) <= 1e-9 * activations[0]).all()


@unhurried
@given(machines, models, strategies, seeds)
def test_what_only_published_stacks_do_lies_between(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int
) -> None:
    """Checkpointing by operation between none and full; norms of single operations never faster."""
    parameters = perturbed(Parameters.default(machine), seed=seed)
    plain = replace(layout, activation_checkpointing="none", pipeline_parallel=1)
    seconds, activations = [], []
    by_operation = replace(parameters, selective_by_operation=1.0)
    for changes in ({}, {"selective_checkpointing": 1.0}, {"full_checkpointing": 1.0}):
        one = strategies_of(
            plain, transformer=transformer, machine=machine, parameters=by_operation, **changes
        )
        seconds.append(float(total(time_parts(one, MicroBatch.of(one)))[0]))
        activations.append(float(memory_parts(one)["activations"][0]))
    assert seconds[0] <= seconds[1] * EXACT
    assert seconds[1] <= seconds[2] * EXACT
    assert activations[0] * EXACT >= activations[1]
    assert activations[1] * EXACT >= activations[2]
    separate = strategies_of(
        plain, transformer=transformer, machine=machine, parameters=parameters, fused_norm=0.0
    )
    assert seconds[0] <= float(total(time_parts(separate, MicroBatch.of(separate)))[0]) * EXACT


@unhurried
@given(machines, models, strategies, st.floats(2.0, 4.0))
def test_zero_never_needs_more_state(
    machine: Machine, transformer: Transformer, layout: Strategy, gradient_bytes: float
) -> None:
    """Without a pipeline, which keeps what stage 3 gathers."""
    parameters = replace(Parameters.default(machine), gradient_bytes=gradient_bytes)
    chosen = [replace(layout, zero_stage=z, pipeline_parallel=1) for z in range(4)]
    costs = cost(*chosen, transformer=transformer, machine=machine, parameters=parameters)
    names = ("parameters", "gradients", "optimizer")
    states = total({name: costs.memory_parts_gib[name] for name in names})
    assert (np.diff(states) <= 1e-9 * states[0]).all()


@unhurried
@given(machines, models, strategies, seeds)
def test_tensor_parallelism_never_needs_more_memory(
    machine: Machine, transformer: Transformer, layout: Strategy, seed: int
) -> None:
    """States and activations of a rank, with as many replicas and the same micro-batch."""
    parameters = perturbed(Parameters.default(machine), seed=seed)
    chosen = [
        replace(layout, tensor_parallel=t, pipeline_parallel=1, num_nodes=16 * t)
        for t in (1, 2, 4, 8)
    ]
    costs = cost(*chosen, transformer=transformer, machine=machine, parameters=parameters)
    names = ("parameters", "gradients", "optimizer", "activations")
    sizes = total({name: costs.memory_parts_gib[name] for name in names})
    assert (np.diff(sizes) <= 1e-9 * sizes[0]).all()


@settings(unhurried, max_examples=100)
@given(models, strategies, machines)
def test_no_gpu_exceeds_its_peak(
    transformer: Transformer, layout: Strategy, machine: Machine
) -> None:
    """MFU below 1, and in fp32 below the share of the peak that it has."""
    parameters = Parameters.default(machine)
    costs = cost(layout, transformer=transformer, machine=machine, parameters=parameters)
    gpus = layout.world_size(machine.gpus_per_node)
    batch = layout.global_batch_size(machine.gpus_per_node)
    peak = 1e12 * (machine.peak_tflops or float(parameters.nominal_tflops))
    rate = float(parameters.fp32_rate) if layout.precision == "fp32" else 1.0
    flops = transformer.model_flops(batch) / costs.iteration_time_s[0]
    assert 0 < flops < gpus * peak * rate


@pytest.mark.parametrize("name", [name for name in model_names() if not load_model(name).features])
def test_no_model_exceeds_the_peak(name: str) -> None:
    """Nor on the fastest of 20 other plausible machines of each kind, where all is aligned and
    nothing is sent: hardware FLOPs, of which a causal kernel computes half of the scores."""
    transformer = load_model(name)
    layout = strategy(
        tensor_parallel=1, pipeline_parallel=1, micro_batch_size=8, num_nodes=1, zero_stage=0
    )
    scores = 2.0 * transformer.seq_length * transformer.hidden_size * transformer.num_layers
    batch = layout.global_batch_size(1)
    causal = transformer.hardware_flops(batch, "full") - 4.0 * scores * (
        batch * transformer.seq_length
    )
    for machine in (load_machine("dgx-a100"), load_machine("frontier"), CPU):
        alone = replace(machine, gpus_per_node=1)
        default = Parameters.default(machine)
        for seed in range(20):
            parameters = perturbed(default, seed=seed)
            costs = cost(layout, transformer=transformer, machine=alone, parameters=parameters)
            peak = 1e12 * (machine.peak_tflops or float(parameters.nominal_tflops))
            assert causal / costs.iteration_time_s[0] < peak
