"""Memory: each part against its formula by hand, and what must never fall or rise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model import Parameters, state_bytes_per_parameter
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import CPU, FRONTIER, GPT_22B, LLAMA, cost, strategy

GIB = 2**30
# A busy machine takes its time now and then: that is no failure.
unhurried = settings(deadline=None)

CHECKPOINTING = ["none", "selective", "full"]


def parts_gib(**changes: object) -> dict[str, float]:
    estimate = cost(strategy(**changes))
    return {name: float(column[0]) for name, column in estimate.memory_parts_gib.items()}


@pytest.mark.parametrize(
    ("zero_stage", "expected"),
    [
        (0, 18),
        (1, 6 + 12 / 4),
        (2, 2 + 16 / 4),
        (3, 18 / 4),
    ],
)
def test_zero_divides_states(zero_stage: int, expected: float) -> None:
    total = state_bytes_per_parameter(zero_stage=zero_stage, data_parallel=4).total
    assert float(total) == pytest.approx(expected)


def test_fp32_weight_is_its_own_master() -> None:
    states = state_bytes_per_parameter(element_bytes=4)
    assert (float(states.parameters), float(states.gradients)) == (4, 4)
    assert float(states.total) == 16


def test_states_of_the_first_stage() -> None:
    """12 layers' matrices and the embedding over TP 2, norms and positions whole, DP 2, ZeRO-1."""
    h = 6144
    layer = 12 * h * h / 2 + 13 * h
    embedding = 51200 * h / 2 + 2048 * h
    parameters = 12 * layer + embedding
    parts = parts_gib()
    assert parts["parameters"] == pytest.approx(parameters * (2 + 4 / 2) / GIB)
    assert parts["gradients"] == pytest.approx(parameters * 4 / GIB)
    assert parts["optimizer"] == pytest.approx(parameters * 8 / 2 / GIB)


def test_activations_without_recomputation() -> None:
    """Korthikanti et al. 2022, equation 2, with and without the score matrix; 4 in flight."""
    s, b, h, a, t = 2048, 2, 6144, 48, 2
    for flash, scores in ((True, 0.0), (False, 5 * a * s / (h * t))):
        parts = parts_gib(activation_checkpointing="none", flash_attention=flash)
        layer = s * b * h * (10 + 24 / t + scores)
        assert parts["activations"] == pytest.approx(12 * 4 * layer / GIB)


def test_activations_with_sequence_parallelism() -> None:
    """Korthikanti et al. 2022, equation 4: all of it divided by t."""
    parts = parts_gib(activation_checkpointing="none", sequence_parallel=True)
    assert parts["activations"] == pytest.approx(12 * 4 * 2048 * 2 * 6144 * 34 / 2 / GIB)


def test_selective_recomputation_keeps_one_layers_scores() -> None:
    s, b, h, a, t = 2048, 2, 6144, 48, 2
    parts = parts_gib(activation_checkpointing="selective", flash_attention=False)
    linear, scores = s * b * h * (10 + 24 / t), 5 * a * s * s * b / t
    assert parts["activations"] == pytest.approx((12 * 4 * linear + scores) / GIB)


def test_full_checkpointing_keeps_inputs_and_one_live_layer() -> None:
    s, b, h, t = 2048, 2, 6144, 2
    expected = 2 * s * b * h * (12 * 4 - 1) + s * b * h * (10 + 24 / t)
    assert parts_gib()["activations"] == pytest.approx(expected / GIB)


def test_few_micro_batches_never_fill_the_pipeline() -> None:
    few = parts_gib(activation_checkpointing="none", gradient_accumulation_steps=2)
    many = parts_gib(activation_checkpointing="none", gradient_accumulation_steps=64)
    assert many["activations"] == pytest.approx(2 * few["activations"])


def test_interleaving_keeps_more_in_flight() -> None:
    plain = parts_gib(activation_checkpointing="none")
    interleaved = parts_gib(activation_checkpointing="none", virtual_stages=2)
    assert interleaved["activations"] == pytest.approx(plain["activations"] * (1 + 3 / 8))


def test_the_last_stage_can_be_the_fullest() -> None:
    """A vast vocabulary: the logits outweigh what is in flight on the first stage."""
    wide = replace(GPT_22B, vocab_size=1_024_000)
    estimate = cost(strategy(micro_batch_size=8), transformer=wide)
    logits = 10 * 8 * 2048 * 1_024_000 / 2
    assert estimate.memory_parts_gib["logits"][0] == pytest.approx(logits / GIB)


def test_without_a_pipeline_one_stage_holds_all() -> None:
    parts = parts_gib(pipeline_parallel=1)
    assert parts["logits"] == pytest.approx(10 * 2 * 2048 * 51200 / 2 / GIB)
    assert parts["activations"] < parts_gib(pipeline_parallel=1, micro_batch_size=4)["activations"]


def test_untied_embeddings_weigh_twice_without_a_pipeline() -> None:
    layout = strategy(pipeline_parallel=1, tensor_parallel=1, zero_stage=0)
    tied = cost(layout, transformer=replace(LLAMA, tied_embeddings=True))
    untied = cost(layout, transformer=replace(LLAMA, tied_embeddings=False))
    more = untied.memory_parts_gib["gradients"] - tied.memory_parts_gib["gradients"]
    assert more[0] == pytest.approx(4 * LLAMA.vocab_size * LLAMA.hidden_size / GIB)


def test_zero_3_gathers_its_largest_layer() -> None:
    parts = parts_gib(pipeline_parallel=1, zero_stage=3)
    assert parts["zero3_gather"] == pytest.approx(4 * GPT_22B.layer_parameters / 2 / GIB)
    assert parts_gib()["zero3_gather"] == 0


def test_overhead_on_gpus_and_on_cpus() -> None:
    """A CPU's limit counts from the process's own baseline: hardly more than slack is left."""
    defaults = Parameters.default(FRONTIER)
    on_gpu = parts_gib()
    slack = defaults.fragmentation * sum(v for k, v in on_gpu.items() if k != "overhead")
    three_groups = defaults.context_gib + 3 * defaults.communicator_gib
    assert on_gpu["overhead"] == pytest.approx(three_groups + slack)
    tiny = Transformer.gpt("tiny", num_layers=4, hidden_size=128, num_attention_heads=4)
    layout = strategy(num_nodes=1, pipeline_parallel=2, precision="fp32")
    on_cpu = cost(layout, transformer=tiny, machine=CPU)
    overhead = on_cpu.memory_parts_gib["overhead"][0]
    slack_on_cpu = Parameters.default(CPU).fragmentation * (on_cpu.memory_gib[0] - overhead)
    assert 0 < overhead - slack_on_cpu < 0.1
    assert on_cpu.memory_limit_gib == CPU.memory_gib


@unhurried
@given(
    zero_stage=st.sampled_from([1, 2, 3]),
    element_bytes=st.sampled_from([2, 4]),
    replicas=st.integers(1, 512),
)
def test_more_replicas_never_need_more_state(
    zero_stage: int, element_bytes: int, replicas: int
) -> None:
    fewer, more = (
        state_bytes_per_parameter(
            zero_stage=zero_stage, data_parallel=d, element_bytes=element_bytes
        ).total
        for d in (replicas, replicas + 1)
    )
    assert more < fewer


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
    """It grows with MBS, never shrinks with GAS, and falls with checkpointing, flash attention,
    sequence parallelism and nodes."""
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
    base, larger, longer, wider, none, full, unfused, gathered = cost(
        plain,
        replace(plain, micro_batch_size=micro_batch_size + 1),
        replace(plain, gradient_accumulation_steps=accumulation + 1),
        replace(plain, num_nodes=16),
        replace(plain, activation_checkpointing="none"),
        replace(plain, activation_checkpointing="full"),
        replace(plain, flash_attention=False),
        replace(plain, sequence_parallel=False),
    ).memory_gib
    assert larger > base
    assert longer >= base
    assert wider <= base + 0.4 * 1.0001  # one communicator more, where there were no replicas
    assert full <= base * (1 + 1e-12)
    assert base <= none * (1 + 1e-12)
    assert unfused >= base
    assert gathered >= base


def test_fits_is_within_the_usable_memory() -> None:
    estimate = cost(*(strategy(micro_batch_size=b) for b in (1, 8, 64)))
    assert estimate.memory_limit_gib == pytest.approx(0.95 * 64)
    assert np.array_equal(estimate.fits, estimate.memory_gib <= estimate.memory_limit_gib)
    assert estimate.fits.any()
    assert not estimate.fits.all()
