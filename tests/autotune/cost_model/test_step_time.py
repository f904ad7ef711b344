"""Step time: the schedule against its formula by hand, each term's direction, and sums."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model import Parameters, perturbed
from search_spaces.catalog import load_machine, machine_names
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    CPU,
    FRONTIER,
    GPT_22B,
    GPT_175B,
    LLAMA,
    cost,
    strategy,
)

# A busy machine takes its time now and then: that is no failure.
unhurried = settings(deadline=None)

layouts = st.builds(
    strategy,
    tensor_parallel=st.sampled_from([1, 2, 4, 8, 16]),
    pipeline_parallel=st.sampled_from([1, 2, 4, 8]),
    micro_batch_size=st.integers(1, 8),
    gradient_accumulation_steps=st.integers(1, 64),
    zero_stage=st.sampled_from([0, 1, 2, 3]),
    num_nodes=st.sampled_from([16, 32]),
    activation_checkpointing=st.sampled_from(["none", "selective", "full"]),
    sequence_parallel=st.booleans(),
    flash_attention=st.booleans(),
    virtual_stages=st.sampled_from([1, 2, 3]),
    precision=st.sampled_from(["fp16", "bf16", "fp32"]),
)


def seconds(layout: Strategy, **options: object) -> float:
    return float(cost(layout, **options).iteration_time_s[0])  # type: ignore[arg-type]


def part(name: str, layout: Strategy, **options: object) -> float:
    return float(cost(layout, **options).time_parts_s[name][0])  # type: ignore[arg-type]


@unhurried
@given(st.lists(layouts, min_size=1, max_size=5), st.sampled_from([GPT_22B, LLAMA]))
def test_parts_add_up(chosen: list[Strategy], transformer: Transformer) -> None:
    estimate = cost(*chosen, transformer=transformer)
    times = np.sum(list(estimate.time_parts_s.values()), axis=0)
    memory = np.sum(list(estimate.memory_parts_gib.values()), axis=0)
    np.testing.assert_allclose(times, estimate.iteration_time_s, rtol=1e-12)
    np.testing.assert_allclose(memory, estimate.memory_gib, rtol=1e-12)
    for column in (*estimate.time_parts_s.values(), *estimate.memory_parts_gib.values()):
        assert column.shape == (len(chosen),)
        assert np.isfinite(column).all()
        assert (column >= 0).all()


@unhurried
@given(layouts)
def test_what_time_never_does(plain: Strategy) -> None:
    """It grows with GAS and MBS, and with recomputation."""
    base, longer, larger, none, full = cost(
        plain,
        replace(plain, gradient_accumulation_steps=plain.gradient_accumulation_steps + 1),
        replace(plain, micro_batch_size=plain.micro_batch_size + 1),
        replace(plain, activation_checkpointing="none"),
        replace(plain, activation_checkpointing="full"),
    ).iteration_time_s
    assert longer > base
    assert larger >= base
    assert none <= base * (1 + 1e-12)
    assert base <= full * (1 + 1e-12)


@unhurried
@given(st.lists(layouts, min_size=2, max_size=6))
def test_a_lattice_is_its_strategies(chosen: list[Strategy]) -> None:
    together = cost(*chosen)
    apart = [cost(one) for one in chosen]
    assert together.iteration_time_s == pytest.approx([float(e.iteration_time_s[0]) for e in apart])
    assert together.memory_gib == pytest.approx([float(e.memory_gib[0]) for e in apart])


def test_iteration_time_is_linear_in_accumulation() -> None:
    """1F1B: `fixed + (GAS + PP - 1) x slowest`, whatever GAS."""
    times = [seconds(strategy(gradient_accumulation_steps=m)) for m in (4, 8, 64)]
    slope = (times[1] - times[0]) / 4
    assert times[2] == pytest.approx(times[1] + 56 * slope)


def test_bubble_of_equal_stages() -> None:
    """With next to no ends and no transfers the bubble is (p - 1)/m of the rest."""
    small_vocabulary = replace(GPT_22B, vocab_size=64)
    fast = replace(FRONTIER, inter_node_gb_per_s=1e9, intra_node_gb_per_s=1e9)
    plain = strategy(gradient_accumulation_steps=8, num_nodes=1)
    estimate = cost(plain, transformer=small_vocabulary, machine=fast)
    bubble = float(estimate.time_parts_s["pipeline_bubble"][0])
    busy = sum(
        float(estimate.time_parts_s[name][0])
        for name in ("matrix_multiplication", "attention", "elementwise", "recomputation")
    )
    assert bubble / busy == pytest.approx(3 / 8, rel=0.02)


def test_interleaving_divides_the_bubble_and_multiplies_transfers() -> None:
    plain, interleaved = strategy(), strategy(virtual_stages=3)
    for name, factor in (("pipeline_bubble", 1 / 3), ("pipeline_transfer", 3)):
        assert part(name, interleaved) == pytest.approx(factor * part(name, plain), rel=0.05)


def test_no_pipeline_has_no_bubble_nor_transfer() -> None:
    layout = strategy(pipeline_parallel=1)
    assert part("pipeline_bubble", layout) == pytest.approx(0, abs=1e-9)
    assert part("pipeline_transfer", layout) == 0


def test_uneven_stages_wait_for_the_fullest() -> None:
    """48 layers over 5 stages: 10 on the fullest, so the layers take as long as 50 over 5."""
    uneven = strategy(pipeline_parallel=5, tensor_parallel=1, num_nodes=5)
    even = replace(GPT_22B, num_layers=50)
    name = "matrix_multiplication"
    assert part(name, uneven) == pytest.approx(part(name, uneven, transformer=even))
    bubble = "pipeline_bubble"
    assert part(bubble, uneven) < part(bubble, uneven, transformer=even)


def test_tensor_parallel_beyond_the_node_is_slower() -> None:
    """The rate, not only the volume: 2.1 times slower at 16 than at 8 was measured."""
    name = "tensor_parallel"
    inside = part(name, strategy(tensor_parallel=8, num_nodes=4), transformer=GPT_175B)
    across = part(name, strategy(tensor_parallel=16, num_nodes=8), transformer=GPT_175B)
    assert across > 1.15 * inside
    assert part(name, strategy(tensor_parallel=1)) == 0


def test_recomputation_adds_a_third_of_the_all_reduces() -> None:
    full = part("tensor_parallel", strategy())
    none = part("tensor_parallel", strategy(activation_checkpointing="none"))
    assert full == pytest.approx(1.5 * none)


def test_recomputation_is_one_forward_pass() -> None:
    full = strategy(activation_checkpointing="full")
    selective = strategy(activation_checkpointing="selective")
    none = strategy(activation_checkpointing="none")
    assert part("recomputation", none) == 0
    assert 0 < part("recomputation", selective) < part("recomputation", full)
    assert part("recomputation", full) < part("matrix_multiplication", full)


def test_flash_attention_is_faster_on_long_sequences() -> None:
    long = replace(GPT_22B, seq_length=8192)
    fused, plain = strategy(), strategy(flash_attention=False)
    assert part("attention", fused, transformer=long) < part("attention", plain, transformer=long)


def test_misaligned_shapes_are_slower() -> None:
    """96 more channels, yet a sharded width that is no multiple of 64 or a head none of 8."""
    odd_heads = replace(GPT_22B, num_attention_heads=52, num_query_groups=52, hidden_size=6136)
    odd_inner = replace(GPT_22B, ffn_hidden_size=24576 - 2)
    for name, odd in (("attention", odd_heads), ("matrix_multiplication", odd_inner)):
        assert part(name, strategy(), transformer=odd) > 1.1 * part(name, strategy())


def test_small_layers_wait_for_the_host() -> None:
    small = Transformer.gpt("small", num_layers=48, hidden_size=512, num_attention_heads=8)
    layout = strategy(micro_batch_size=1)
    assert part("host", layout, transformer=small) > 0
    assert part("host", layout) == 0
    passes = part("host", replace(layout, activation_checkpointing="full"), transformer=small)
    assert passes > part(
        "host", replace(layout, activation_checkpointing="none"), transformer=small
    )


def test_sequence_parallelism_divides_elementwise_work() -> None:
    wide = strategy(tensor_parallel=8)
    assert part("elementwise", replace(wide, sequence_parallel=True)) < 0.5 * part(
        "elementwise", wide
    )


def test_fp32_is_slower() -> None:
    assert seconds(strategy(precision="fp32")) > 2 * seconds(strategy())


def test_zero_sends_with_micro_batches_or_with_steps() -> None:
    """Stages 0 and 1 send twice in a step, 2 once with each micro-batch, 3 three times."""
    plain = strategy(pipeline_parallel=1, gradient_accumulation_steps=4)
    slow = replace(Parameters.default(FRONTIER), data_parallel_overlap=0.0)
    each, once = (
        [part(name, replace(plain, zero_stage=z), parameters=slow) for z in range(4)]
        for name in ("zero_micro_batches", "data_parallel")
    )
    ring = once[2]
    assert once == pytest.approx([2 * ring, 2 * ring, ring, 0])
    assert each == pytest.approx([0, 0, 4 * ring, 12 * ring])


def test_overlap_hides_data_parallel_traffic() -> None:
    plain = Parameters.default(FRONTIER)
    hidden, shown = (
        part("data_parallel", strategy(), parameters=replace(plain, data_parallel_overlap=share))
        for share in (0.9, 0.0)
    )
    assert hidden < shown


def test_zero_divides_the_optimizer_step() -> None:
    whole = part("optimizer_step", strategy(zero_stage=0))
    divided = part("optimizer_step", strategy(zero_stage=1))
    assert divided == pytest.approx(whole * (6 + 14 / 2) / 20)


def test_a_cpu_is_slow_and_finite() -> None:
    tiny = Transformer.gpt("tiny", num_layers=4, hidden_size=128, num_attention_heads=4)
    layout = strategy(num_nodes=1, pipeline_parallel=2, precision="fp32", flash_attention=False)
    on_cpu = seconds(layout, transformer=tiny, machine=CPU)
    assert on_cpu > 10 * seconds(layout, transformer=tiny)


def test_an_unknown_gpu_without_a_peak_is_no_cpu() -> None:
    unknown = replace(CPU, gpu="FutureGPU", memory_bandwidth_gb_per_s=500.0)
    assert Parameters.default(unknown) == Parameters()
    assert Parameters.default(unknown) != Parameters.default(CPU)


@pytest.mark.parametrize("name", machine_names())
def test_every_machine_gives_a_plausible_share_of_its_peak(name: str) -> None:
    """22B one GPU to a stage: between a tenth and 0.8 of the peak on every cluster."""
    machine = load_machine(name)
    if machine.peak_tflops is None:
        assert Parameters.default(machine).context_gib < 0.1
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


def test_perturbed_is_another_plausible_machine() -> None:
    plain = Parameters.default(FRONTIER)
    assert perturbed(plain, seed=1) == perturbed(plain, seed=1)
    assert perturbed(plain, seed=1) != perturbed(plain, seed=2)
    ratios = []
    for seed in range(50):
        other = perturbed(plain, seed=seed)
        assert other.compute_units == plain.compute_units
        for constant in fields(plain):
            value, was = getattr(other, constant.name), getattr(plain, constant.name)
            if constant.metadata["unit"] == "fraction":
                assert 0 < value < 1
            if constant.metadata["unit"] == "s":
                ratios.append(np.log(value / was))
    assert 0.1 < np.std(ratios) < 0.2
    assert abs(np.mean(ratios)) < 0.06


def test_every_constant_has_a_unit_and_a_reason() -> None:
    for constant in fields(Parameters):
        assert constant.metadata["unit"]
        assert len(constant.metadata["reason"]) > 20
