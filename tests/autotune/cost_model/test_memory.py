"""Memory: each part against its formula by hand, and what must never fall or rise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cost_model import Parameters, activations, memory
from autotune.cost_model.memory import FREED
from tests.autotune.cost_model.examples import (
    CHECKPOINTING,
    CPU,
    FRONTIER,
    GIB,
    GPT_22B,
    LLAMA,
    TINY,
    cost,
    paper_bytes,
    strategies_of,
    strategy,
    unhurried,
)

PAPER = paper_bytes(FRONTIER)
S, B, H, A, T = 2048, 2, 6144, 48, 2
"""Of `strategy()`: sequence, micro-batch, hidden size, heads, TP."""


def parts_gib(*, parameters: Parameters = PAPER, **changes: object) -> dict[str, float]:
    estimate = cost(strategy(**changes), parameters=parameters)
    return {name: float(column[0]) for name, column in estimate.memory_parts_gib.items()}


@pytest.mark.parametrize(
    ("checkpointing", "sequence_parallel", "flash", "expected"),
    [
        ("none", False, False, 10 + 24 / T + 5 * A * S / (H * T)),
        ("none", True, False, 34 / T + 5 * A * S / (H * T)),
        ("none", False, True, 10 + 24 / T),
        ("none", True, True, 34 / T),
        ("selective", False, False, 10 + 24 / T),
        ("selective", True, False, 34 / T),
        ("full", False, False, 2),
        ("full", True, False, 2 / T),
    ],
)
def test_what_a_layer_keeps(
    checkpointing: str, sequence_parallel: bool, flash: bool, expected: float
) -> None:
    """In `s b h`: Korthikanti et al. 2022, table 2; flash attention stores no scores."""
    parts = parts_gib(
        pipeline_parallel=1,
        activation_checkpointing=checkpointing,
        sequence_parallel=sequence_parallel,
        flash_attention=flash,
    )
    assert parts["activations"] == pytest.approx(48 * S * B * H * expected / GIB)


@pytest.mark.parametrize("gated_activation_bytes", [6.0, 8.0, 10.0])
def test_activations_of_a_gated_model(gated_activation_bytes: float) -> None:
    """Keys and values of 8 of 32 heads, three inner states of 3.5 h, more of them if no fused
    kernel computes the activation; norms that are no one kernel keep copies."""
    layout = strategy(tensor_parallel=1)
    parameters = replace(PAPER, norm_bytes=4.0, gated_activation_bytes=gated_activation_bytes)
    states = 8 + 4 + 4 / 4 + gated_activation_bytes * 14336 / 4096
    for fused, copies in ((1.0, 0), (0.0, 4)):
        one = strategies_of(layout, transformer=LLAMA, parameters=parameters, fused_norm=fused)
        expected = 8192 * 2 * 4096 * (states + copies)
        assert activations.dense_layer(one)[0] == pytest.approx(expected)


def test_activations_in_fp32_are_twice_as_large() -> None:
    half, single = (
        parts_gib(precision=p, activation_checkpointing="none", flash_attention=False)
        for p in ("fp16", "fp32")
    )
    assert single["activations"] == pytest.approx(2 * half["activations"])


@pytest.mark.parametrize(("tensor_parallel", "shards"), [(1, 1), (4, 1), (4, 4)])
def test_what_a_gated_layer_keeps_by_operation(tensor_parallel: int, shards: int) -> None:
    """In `2 s b h`: the input and half of two projections, cut with the sequence; the attention's
    result and half of query, keys and values of 8 of 32 heads, and two wide products of 3.5 h."""
    layout = strategy(
        tensor_parallel=tensor_parallel,
        activation_checkpointing="selective",
        sequence_parallel=shards > 1,
    )
    constants = replace(PAPER, selective_by_operation=1.0)
    one = strategies_of(layout, transformer=LLAMA, parameters=constants)
    activation_bytes = activations.ActivationBytes.of(one)
    half = (1 + 2 / 4 + 2 * 3.5) / 2
    expected = 2 * 8192 * 2 * 4096 * ((1 + 1) / shards + (1 + half) / tensor_parallel)
    assert activation_bytes.dense[0] == pytest.approx(expected)
    assert activation_bytes.dense[0] > 2 * 8192 * 2 * 4096 / shards
    assert activation_bytes.passing[0] > 0


def test_unfused_scores() -> None:
    layout = strategy(flash_attention=False)
    one = strategies_of(
        layout, parameters=replace(PAPER, unfused_score_bytes=11), unfused_softmax=1.0
    )
    assert activations.score_activations(one)[0] == pytest.approx(11 * A * S * S * B / T)


@pytest.mark.parametrize(
    ("checkpointing", "flash", "lost"),
    [
        ("none", False, 0),
        ("selective", True, 0),
        ("selective", False, 5 * A * S * S * B / T),
        ("full", True, S * B * H * (10 + 24 / T - 2)),
        ("full", False, S * B * H * (10 + 24 / T - 2) + 5 * A * S * S * B / T),
    ],
)
def test_what_lives_while_it_is_recomputed(checkpointing: str, flash: bool, lost: float) -> None:
    parts = parts_gib(
        parameters=replace(PAPER, recomputed_layer=1.5),
        activation_checkpointing=checkpointing,
        flash_attention=flash,
    )
    assert parts["recomputation"] == pytest.approx(1.5 * lost / GIB)


def test_activations_in_flight() -> None:
    """12 layers, four micro-batches on the first stage."""
    parts = parts_gib(activation_checkpointing="none")
    assert parts["activations"] == pytest.approx(12 * 4 * S * B * H * (10 + 24 / T) / GIB)


def test_few_micro_batches_never_fill_the_pipeline() -> None:
    few = parts_gib(activation_checkpointing="none", gradient_accumulation_steps=2)
    many = parts_gib(activation_checkpointing="none", gradient_accumulation_steps=64)
    assert many["activations"] == pytest.approx(2 * few["activations"])


def test_interleaving_keeps_more_in_flight() -> None:
    """`1 + (p - 1)/(p v)` (Korthikanti et al. 2022, section 4.2.3)."""
    plain = parts_gib(activation_checkpointing="none")
    interleaved = parts_gib(activation_checkpointing="none", virtual_stages=2)
    assert interleaved["activations"] == pytest.approx(plain["activations"] * (1 + 3 / 8))


def test_context_parallelism_divides_activations() -> None:
    layout = strategy(activation_checkpointing="none", pipeline_parallel=1)
    whole, cut = (
        memory.memory_parts(strategies_of(layout, parameters=PAPER, context_parallel=c))
        for c in (1.0, 4.0)
    )
    for name in ("activations", "logits"):
        assert 0 < cut[name][0] == pytest.approx(whole[name][0] / 4)


def test_the_last_stage_can_be_the_fullest() -> None:
    """A vast vocabulary: the logits outweigh what is in flight on the first stage."""
    wide = replace(GPT_22B, vocab_size=1_024_000)
    constants = replace(PAPER, logits_bytes=10)
    estimate = cost(strategy(micro_batch_size=8), transformer=wide, parameters=constants)
    logits = 10 * 8 * 2048 * 1_024_000 / 2
    assert estimate.memory_parts_gib["logits"][0] == pytest.approx(logits / GIB)
    one_in_flight = 12 * 2 * S * 8 * H
    assert estimate.memory_parts_gib["activations"][0] == pytest.approx(one_in_flight / GIB)


@pytest.mark.parametrize(("recomputed", "logits"), [(0.0, 12 * B * S * 51200 / T), (100.0, 0.0)])
def test_the_peak_is_at_the_logits_or_at_a_recomputed_layer(
    recomputed: float, logits: float
) -> None:
    """Never at both: the logits are gone when a layer is differentiated."""
    constants = replace(PAPER, recomputed_layer=recomputed, logits_bytes=12)
    parts = parts_gib(parameters=constants, pipeline_parallel=1)
    passing = recomputed * S * B * H * (10 + 24 / T - 2)
    assert parts["logits"] == pytest.approx(logits / GIB)
    assert parts["recomputation"] == pytest.approx(passing / GIB)


def test_overhead_on_a_gpu() -> None:
    """Context, a communicator for each kind of group with more than one member, and gaps."""
    constants = replace(PAPER, context_gib=2.0, communicator_gib=0.5, fragmentation=0.1)
    for changes, groups in (
        ({}, 3),
        ({"tensor_parallel": 1}, 2),
        ({"tensor_parallel": 4}, 2),  # DP 1
        ({"tensor_parallel": 1, "pipeline_parallel": 1}, 1),
    ):
        parts = parts_gib(parameters=constants, **changes)
        freed = sum(parts[name] for name in FREED if name in parts)
        assert parts["fragmentation"] == pytest.approx(0.1 * freed)
        assert parts["overhead"] == pytest.approx(2 + 0.5 * groups)


def test_overhead_on_a_cpu() -> None:
    """A CPU's limit counts from the process's own baseline: hardly more than slack is left."""
    layout = strategy(num_nodes=1, pipeline_parallel=2, precision="fp32")
    on_cpu = cost(layout, transformer=TINY, machine=CPU)
    assert 0 < on_cpu.memory_parts_gib["overhead"][0] < 0.1
    allocated = on_cpu.memory_gib - on_cpu.memory_parts_gib["overhead"]
    assert on_cpu.reserved_gib == pytest.approx(allocated)
    assert on_cpu.memory_limit_gib == CPU.memory_gib


@unhurried
@given(
    tensor_parallel=st.sampled_from([1, 2, 4, 8]),
    pipeline_parallel=st.sampled_from([1, 2, 4, 8]),
    micro_batch_size=st.integers(1, 16),
    accumulation=st.integers(1, 64),
    checkpointing=st.sampled_from(CHECKPOINTING),
    flash=st.booleans(),
    sequence_parallel=st.booleans(),
)
def test_what_memory_never_does(
    tensor_parallel: int,
    pipeline_parallel: int,
    micro_batch_size: int,
    accumulation: int,
    checkpointing: str,
    flash: bool,
    sequence_parallel: bool,
) -> None:
    """It grows with MBS, never shrinks with GAS, and falls with flash attention, sequence
    parallelism and nodes."""
    plain = strategy(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=accumulation,
        num_nodes=8,
        activation_checkpointing=checkpointing,
        flash_attention=flash,
        sequence_parallel=sequence_parallel,
    )
    base, larger, longer, wider, unfused, gathered = cost(
        plain,
        replace(plain, micro_batch_size=micro_batch_size + 1),
        replace(plain, gradient_accumulation_steps=accumulation + 1),
        replace(plain, num_nodes=16),
        replace(plain, flash_attention=False),
        replace(plain, sequence_parallel=False),
    ).memory_gib
    one_communicator = float(Parameters.default(FRONTIER).communicator_gib)
    assert larger > base
    assert longer >= base
    assert wider <= base + one_communicator * 1.0001  # where there were no replicas
    assert unfused >= base
    assert gathered >= base


def test_fits_is_within_the_usable_memory() -> None:
    constants = replace(Parameters.default(FRONTIER), usable_memory=0.9)
    chosen = [strategy(micro_batch_size=b) for b in (1, 8, 64)]
    estimate = cost(*chosen, parameters=constants)
    assert estimate.memory_limit_gib == pytest.approx(0.9 * 64)
    assert np.array_equal(estimate.fits, estimate.memory_gib <= estimate.memory_limit_gib)
    assert estimate.fits.any()
    assert not estimate.fits.all()
