"""Step time: the schedule against its formula by hand, what each term depends on, and sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cost_model import Parameters
from autotune.cost_model.compute import host_time_s
from autotune.cost_model.step_time import layer_parts
from autotune.cost_model.strategies import total
from search_spaces.catalog import load_machine, machine_names
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    CPU,
    DGX_A100,
    FRONTIER,
    GPT_22B,
    GPT_175B,
    TINY,
    cost,
    machines,
    models,
    strategies,
    strategies_of,
    strategy,
    unhurried,
    without_limit,
    without_losses,
)

BUSY = ("matrix_multiplication", "attention", "elementwise", "recomputation", "tensor_parallel")
SMALL = Transformer.gpt("small", num_layers=48, hidden_size=512, num_attention_heads=8)


def seconds(layout: Strategy, **options: object) -> float:
    return float(cost(layout, **options).iteration_time_s[0])  # type: ignore[arg-type]


def part(name: str, layout: Strategy, **options: object) -> float:
    return float(cost(layout, **options).time_parts_s[name][0])  # type: ignore[arg-type]


@unhurried
@given(st.lists(strategies, min_size=1, max_size=5), models, machines)
def test_parts_add_up(chosen: list[Strategy], transformer: Transformer, machine: Machine) -> None:
    estimate = cost(*chosen, transformer=transformer, machine=machine)
    times = np.sum(list(estimate.time_parts_s.values()), axis=0)
    memory = np.sum(list(estimate.memory_parts_gib.values()), axis=0)
    np.testing.assert_allclose(times, estimate.iteration_time_s, rtol=1e-12)
    np.testing.assert_allclose(memory, estimate.memory_gib, rtol=1e-12)
    for column in (*estimate.time_parts_s.values(), *estimate.memory_parts_gib.values()):
        assert column.shape == (len(chosen),)
        assert np.isfinite(column).all()
        assert (column >= 0).all()


@pytest.mark.parametrize("tensor_parallel", [1, 8])
@pytest.mark.parametrize("pipeline_parallel", [1, 4])
def test_operations_of_a_step(tensor_parallel: int, pipeline_parallel: int) -> None:
    """`72 B s L h^2 (1 + s/6h + V/12Lh)` over all GPUs (Korthikanti et al. 2022, appendix A),
    where nothing is lost and no stage waits."""
    links = ("intra_node_gb_per_s", "inter_node_gb_per_s")
    ideal = without_limit(DGX_A100, "memory_bandwidth_gb_per_s", *links)
    layout = strategy(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        num_nodes=4,
        activation_checkpointing="none",
        flash_attention=False,
        zero_stage=0,
    )
    estimate = cost(layout, transformer=GPT_175B, machine=ideal, parameters=without_losses(ideal))
    batch = layout.global_batch_size(8)
    in_layers = sum(
        float(estimate.time_parts_s[name][0]) for name in ("matrix_multiplication", "attention")
    )
    ends = float(estimate.time_parts_s["embedding_and_logits"][0])
    # The logits keep one stage of several busy, and the layers all of them.
    operations = (in_layers * 32 + ends * 32 / pipeline_parallel) * 312e12
    assert operations == pytest.approx(GPT_175B.model_flops(batch))


def test_recomputation_in_a_step() -> None:
    """A third more with full checkpointing, logits apart; `s/18h` more with selective."""
    ideal = without_limit(DGX_A100, "memory_bandwidth_gb_per_s")
    for checkpointing, share in (("full", 1 / 3), ("selective", 1 / 18 * 2048 / 6144)):
        layout = strategy(activation_checkpointing=checkpointing, flash_attention=False)
        estimate = cost(layout, machine=ideal, parameters=without_losses(ideal))
        parts = estimate.time_parts_s
        matrices = float(parts["matrix_multiplication"][0])
        scores = float(parts["attention"][0])
        base = matrices + scores if checkpointing == "full" else matrices
        assert float(parts["recomputation"][0]) == pytest.approx(share * base)


def test_iteration_time_is_linear_in_accumulation() -> None:
    """1F1B: `fixed + (GAS + PP - 1) x slowest`, whatever GAS."""
    times = [seconds(strategy(gradient_accumulation_steps=m)) for m in (4, 8, 64)]
    slope = (times[1] - times[0]) / 4
    assert times[2] == pytest.approx(times[1] + 56 * slope)


@pytest.mark.parametrize("virtual_stages", [1, 3])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 8), (4, 8), (8, 64), (8, 1)])
def test_bubble_of_equal_stages(stages: int, micro_batches: int, virtual_stages: int) -> None:
    """`(p - 1)/(m v)` of the rest (Narayanan et al. 2021, section 2.2), with next to no ends."""
    small_vocabulary = replace(GPT_22B, vocab_size=1)
    ideal = without_limit(DGX_A100, "inter_node_gb_per_s", "intra_node_gb_per_s")
    plain = strategy(
        tensor_parallel=1,
        pipeline_parallel=stages,
        gradient_accumulation_steps=micro_batches,
        virtual_stages=virtual_stages,
        num_nodes=1,
    )
    estimate = cost(
        plain, transformer=small_vocabulary, machine=ideal, parameters=without_losses(ideal)
    )
    bubble = float(estimate.time_parts_s["pipeline_bubble"][0])
    busy = sum(float(estimate.time_parts_s[name][0]) for name in BUSY)
    assert bubble / busy == pytest.approx((stages - 1) / (micro_batches * virtual_stages), rel=0.01)


def test_interleaving_divides_bubble_and_multiplies_transfers() -> None:
    """Of those it hides a part: 0.4 of three times as many show."""
    plain, interleaved = strategy(), strategy(virtual_stages=3)
    for name, factor in (("pipeline_bubble", 1 / 3), ("pipeline_transfer", 0.4 * 3)):
        assert part(name, interleaved) == pytest.approx(factor * part(name, plain), rel=0.05)


@pytest.mark.parametrize(("nodes", "doublings"), [(1, 0), (2, 1), (16, 4)])
def test_all_wait_for_the_slowest_of_more_nodes(nodes: int, doublings: int) -> None:
    """A share of what the stages do, for each doubling of nodes; nothing within one."""
    layout = strategy(num_nodes=nodes)
    parts = cost(layout, parameters=replace(Parameters.default(FRONTIER), straggling=0.01))
    once = {"stragglers", "zero_micro_batches", "data_parallel", "optimizer_step", "step_overhead"}
    steady = sum(float(s[0]) for name, s in parts.time_parts_s.items() if name not in once)
    assert parts.time_parts_s["stragglers"][0] == pytest.approx(0.01 * doublings * steady)


def test_no_pipeline_has_no_bubble_nor_transfer() -> None:
    layout = strategy(pipeline_parallel=1)
    assert part("pipeline_bubble", layout) == pytest.approx(0, abs=1e-9)
    assert part("pipeline_transfer", layout) == 0


@pytest.mark.parametrize("virtual_stages", [1, 2])
def test_uneven_stages_wait_for_the_fullest(virtual_stages: int) -> None:
    """48 layers over 5 stages: 10 on the fullest, so the layers take as long as 50 over 5; the ends
    have 9 and take no longer than the others."""
    uneven = strategy(
        pipeline_parallel=5, tensor_parallel=1, num_nodes=5, virtual_stages=virtual_stages
    )
    even = replace(GPT_22B, num_layers=50)
    name = "matrix_multiplication"
    assert part(name, uneven) == pytest.approx(part(name, uneven, transformer=even))
    for less in ("pipeline_bubble", "embedding_and_logits"):
        assert part(less, uneven) < part(less, uneven, transformer=even)


def test_the_slower_end_counts() -> None:
    """Embedding and logits are on one stage without a pipeline, on two with it."""
    name = "embedding_and_logits"
    one, two = (part(name, strategy(pipeline_parallel=p, tensor_parallel=1)) for p in (1, 2))
    assert 0.9 * one < two < one


def test_recomputation_adds_a_third_of_the_all_reduces() -> None:
    full = part("tensor_parallel", strategy())
    none = part("tensor_parallel", strategy(activation_checkpointing="none"))
    assert full == pytest.approx(1.5 * none)


def test_misaligned_shapes_are_slower() -> None:
    """Hardly more channels, yet a sharded width that is no multiple of 64 or a head none of 8."""
    odd_heads = replace(GPT_22B, num_attention_heads=52, num_query_groups=52, hidden_size=6136)
    odd_inner = replace(GPT_22B, ffn_hidden_size=24576 - 2)
    for name, odd in (("attention", odd_heads), ("matrix_multiplication", odd_inner)):
        assert part(name, strategy(), transformer=odd) > 1.1 * part(name, strategy())


def test_a_small_layer_takes_as_long_as_its_launches() -> None:
    """3 or 4 passes of 1 ms on a GPU that could be a hundred times faster; a large one as long as
    its kernels."""
    constants = replace(Parameters.default(DGX_A100), host_floor_s=0.001, tensor_parallel_host=0.0)
    layout = strategy(micro_batch_size=1, pipeline_parallel=1, tensor_parallel=1)
    full = replace(layout, activation_checkpointing="full")
    none = replace(layout, activation_checkpointing="none")
    for small, passes in ((none, 3), (full, 4)):
        estimate = cost(small, transformer=SMALL, machine=DGX_A100, parameters=constants)
        in_layers = sum(float(estimate.time_parts_s[name][0]) for name in (*BUSY, "host"))
        assert in_layers == pytest.approx(16 * 48 * passes * 0.001, rel=0.001)
    assert part("host", strategy()) < 0.001 * seconds(strategy())


def test_a_layer_takes_no_less_than_its_kernels_or_its_launches() -> None:
    """Nor more than both one after the other; where both are alike it takes a little more."""
    chosen = [strategy(micro_batch_size=b, tensor_parallel=1) for b in (1, 2, 4, 8, 16, 32, 64)]
    one = strategies_of(*chosen, transformer=SMALL)
    parts, launches = layer_parts(one), host_time_s(one)
    whole = total(parts)
    kernels = whole - parts["host"]
    assert kernels[0] < launches[0] < kernels[-1]
    assert (whole >= np.maximum(kernels, launches)).all()
    assert (whole <= 1.1 * np.maximum(kernels, launches)).all()


def test_zero_sends_with_micro_batches_or_with_steps() -> None:
    """Stages 0 and 1 send twice in a step, 2 once with each micro-batch, 3 three times."""
    plain = strategy(pipeline_parallel=1, gradient_accumulation_steps=4)
    shown = replace(Parameters.default(FRONTIER), exposed_data_parallel=1.0, replica_step_s=0.0)
    each, once = (
        [part(name, replace(plain, zero_stage=z), parameters=shown) for z in range(4)]
        for name in ("zero_micro_batches", "data_parallel")
    )
    ring = once[2]
    assert ring > 0
    assert once == pytest.approx([2 * ring, 2 * ring, ring, 0])
    assert each == pytest.approx([0, 0, 4 * ring, 12 * ring])


def test_a_pipeline_waits_for_what_zero_3_gathers() -> None:
    """Two gathers for each of 8 micro-batches, and for each of 3 stages while the pipeline fills:
    computation hides none."""
    layout = strategy(zero_stage=3, gradient_accumulation_steps=8, pipeline_parallel=4)
    exposed, half = (
        replace(Parameters.default(FRONTIER), exposed_data_parallel=share, replica_step_s=0.0)
        for share in (1.0, 0.5)
    )
    once = part("data_parallel", layout, parameters=exposed)  # the gradients' reduce-scatter
    for constants in (exposed, half):
        gathers = part("zero_micro_batches", layout, parameters=constants)
        assert gathers == pytest.approx((8 + 3) * 2 * once)


def test_computation_hides_data_parallel_traffic() -> None:
    plain = replace(Parameters.default(FRONTIER), replica_step_s=0.0)
    quarter, all_of_it = (
        part("data_parallel", strategy(), parameters=replace(plain, exposed_data_parallel=share))
        for share in (0.25, 1.0)
    )
    assert quarter == pytest.approx(all_of_it / 4)


def test_what_is_done_once_in_a_step() -> None:
    constants = replace(Parameters.default(FRONTIER), step_overhead_s=0.5)
    for micro_batches in (1, 64):
        layout = strategy(gradient_accumulation_steps=micro_batches)
        assert part("step_overhead", layout, parameters=constants) == 0.5


def test_a_cpu_is_slow_and_finite() -> None:
    layout = strategy(num_nodes=1, pipeline_parallel=2, precision="fp32", flash_attention=False)
    on_cpu = seconds(layout, transformer=TINY, machine=CPU)
    assert on_cpu > 10 * seconds(layout, transformer=TINY)


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_gives_a_plausible_share_of_its_peak(name: str) -> None:
    """22B one GPU to a stage: between a tenth and 0.8 of the peak on every cluster."""
    machine = load_machine(name)
    if machine.peak_tflops is None:
        assert float(Parameters.default(machine).context_gib) < 0.1
        return
    nodes = -(-8 // machine.gpus_per_node)
    layout = strategy(
        tensor_parallel=2, pipeline_parallel=nodes * machine.gpus_per_node // 2, num_nodes=nodes
    )
    batch = layout.global_batch_size(machine.gpus_per_node)
    flops = GPT_22B.hardware_flops(batch, "full")
    gpus = nodes * machine.gpus_per_node
    share = flops / seconds(layout, machine=machine) / gpus / (machine.peak_tflops * 1e12)
    assert 0.1 < share < 0.8
