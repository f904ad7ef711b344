"""Weights, gradients and optimizer states: bytes for each parameter, and parameters of a rank."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cost_model import state_bytes_per_parameter
from autotune.cost_model.states import (
    fullest_routed_parameters,
    fullest_stage_parameters,
    gather_memory,
    stage_parameters,
    state_bytes,
)
from search_spaces.catalog import load_model, model_names
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    FRONTIER,
    GPT_22B,
    LLAMA,
    paper_bytes,
    strategies_of,
    strategy,
    unhurried,
)


@pytest.mark.parametrize(
    ("zero_stage", "expected"),
    [(0, 18), (1, 6 + 12 / 4), (2, 2 + 16 / 4), (3, 18 / 4)],
)
def test_zero_divides_states(zero_stage: int, expected: float) -> None:
    total = state_bytes_per_parameter(zero_stage=zero_stage, shards=4).total
    assert float(total) == pytest.approx(expected)


@pytest.mark.parametrize(("zero_stage", "gigabytes"), [(1, 31.4), (2, 16.6), (3, 1.9)])
def test_zeros_published_example(zero_stage: int, gigabytes: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 GPUs, 16-bit gradients."""
    states = state_bytes_per_parameter(zero_stage=zero_stage, shards=64, gradient_bytes=2)
    assert float(states.total) * 7.5 == pytest.approx(gigabytes, abs=0.05)


def test_fp32_weight_is_its_own_master() -> None:
    states = state_bytes_per_parameter(element_bytes=4)
    assert (float(states.parameters), float(states.gradients)) == (4, 4)
    assert float(states.total) == 16
    sharded = state_bytes_per_parameter(zero_stage=1, shards=4, element_bytes=4, gradient_bytes=2)
    assert float(sharded.total) == 4 + 4 + 8 / 4


def test_what_zero_3_gathers_may_stay_whole() -> None:
    """Weights and gradients whole, master and moments divided."""
    states = state_bytes_per_parameter(
        zero_stage=3, shards=8, gradient_bytes=2, gathered=True, reduced_once=True
    )
    assert float(states.parameters) == 2 + 4 / 8
    assert float(states.gradients) == 2
    assert float(states.optimizer) == 1


@unhurried
@given(
    zero_stage=st.sampled_from([1, 2, 3]),
    element_bytes=st.sampled_from([2, 4]),
    shards=st.integers(1, 512),
)
def test_more_shards_never_need_more_state(
    zero_stage: int, element_bytes: int, shards: int
) -> None:
    fewer, more = (
        state_bytes_per_parameter(
            zero_stage=zero_stage, shards=d, element_bytes=element_bytes
        ).total
        for d in (shards, shards + 1)
    )
    assert more < fewer


@unhurried
@given(
    shards=st.integers(1, 512),
    element_bytes=st.sampled_from([2, 4]),
    gradient_bytes=st.floats(2.0, 4.0),
)
def test_a_higher_stage_never_needs_more_state(
    shards: int, element_bytes: int, gradient_bytes: float
) -> None:
    totals = state_bytes_per_parameter(
        zero_stage=np.arange(4),
        shards=shards,
        element_bytes=element_bytes,
        gradient_bytes=gradient_bytes,
    ).total
    assert (np.diff(totals) <= 1e-12).all()


@pytest.mark.parametrize("name", model_names())
def test_one_rank_holds_the_whole_model(name: str) -> None:
    """Without TP, EP and a pipeline: all parameters but the last norm, and a padded vocabulary; of
    Mamba-2 blocks and linear attention all but their convolutions and vectors, which are few;
    indexers of sparse attention also in layers of multi-token prediction."""
    transformer = load_model(name)
    one = strategies_of(strategy(tensor_parallel=1, pipeline_parallel=1), transformer=transformer)
    padding = -transformer.vocab_size % 128 * transformer.hidden_size
    norm = (2 if transformer.has_biases else 1) * transformer.hidden_size
    embeddings = 1 if transformer.tied_embeddings else 2
    expected = transformer.parameters + transformer.mtp_parameters + embeddings * padding - norm
    alike = transformer.recurrent is None and transformer.sparse_attention is None
    held = fullest_stage_parameters(one)[0] + fullest_routed_parameters(one)[0]
    assert held == pytest.approx(expected, rel=1e-12 if alike else 1e-3)


def test_parameters_of_the_stages() -> None:
    """12 layers' matrices and the embedding over TP 2, norms, biases and positions whole; the last
    stage has the output layer in place of the positions."""
    h = 6144
    layers = 12 * (12 * h * h / 2 + 13 * h)
    embedding = 51200 * h / 2
    one = strategies_of(strategy())
    first = stage_parameters(one, first=True, last=False)
    last = stage_parameters(one, first=False, last=True)
    middle = stage_parameters(one, first=False, last=False)
    assert first[0] == pytest.approx(layers + embedding + 2048 * h)
    assert last[0] == pytest.approx(layers + embedding)
    assert middle[0] == pytest.approx(layers)
    assert fullest_stage_parameters(one)[0] == first[0]


@pytest.mark.parametrize(("layers", "first", "between"), [(49, 10, 10), (48, 9, 10)])
def test_uneven_stages_have_their_own_layers(layers: int, first: int, between: int) -> None:
    """49 layers over 5 stages are 10, 10, 10, 10, 9; 48 are 9, 10, 10, 10, 9."""
    layout = strategy(pipeline_parallel=5, tensor_parallel=1, num_nodes=5)
    uneven, *others = (
        strategies_of(layout, transformer=replace(GPT_22B, num_layers=each))
        for each in (layers, 5 * first, 5 * between)
    )
    of_first, of_between = (
        stage_parameters(even, first=one, last=False)
        for even, one in zip(others, (True, False), strict=True)
    )
    assert stage_parameters(uneven, first=True, last=False) == of_first
    assert stage_parameters(uneven, first=False, last=False) == of_between
    assert fullest_stage_parameters(uneven) == np.maximum(of_first, of_between)
    deepspeed = replace(paper_bytes(FRONTIER), longer_stages_first=1.0)
    in_order = strategies_of(
        layout, transformer=replace(GPT_22B, num_layers=layers), parameters=deepspeed
    )
    assert fullest_stage_parameters(in_order) == stage_parameters(
        strategies_of(layout, transformer=replace(GPT_22B, num_layers=50)), first=True, last=False
    )


@pytest.mark.parametrize("pipeline_parallel", [1, 4])
def test_tied_embeddings_are_one_without_a_pipeline_and_two_with(pipeline_parallel: int) -> None:
    """Counted over all stages."""
    counts = []
    for tied in (True, False):
        one = strategies_of(
            strategy(pipeline_parallel=pipeline_parallel, tensor_parallel=1),
            transformer=replace(LLAMA, tied_embeddings=tied),
        )
        if pipeline_parallel == 1:
            counts.append(fullest_stage_parameters(one)[0])
        else:
            counts.append(stage_parameters(one, first=False, last=True)[0])
    embedding = LLAMA.vocab_size * LLAMA.hidden_size
    assert counts[1] - counts[0] == (embedding if pipeline_parallel == 1 else 0)


@pytest.mark.parametrize(
    ("zero_stage", "pipeline_parallel", "keeps", "expected"),
    [
        (0, 4, 0, (6, 4, 8)),
        (1, 4, 0, (2 + 4 / 2, 3, 8 / 2)),
        (2, 4, 0, (2 + 4 / 2, 3 / 2, 8 / 2)),
        (3, 4, 0, (6 / 2, 3, 8 / 2)),
        (3, 4, 1, (2 + 4 / 2, 3, 8 / 2)),
        (3, 1, 1, (6 / 8, 3 / 8, 8 / 8)),
    ],
)
def test_states_of_a_rank(
    zero_stage: int, pipeline_parallel: int, keeps: int, expected: tuple[float, float, float]
) -> None:
    """DP 2 with the pipeline, 8 without; a gradient of 3 bytes under ZeRO."""
    constants = replace(paper_bytes(FRONTIER), gradient_bytes=3.0, keeps_gathered=keeps)
    layout = strategy(zero_stage=zero_stage, pipeline_parallel=pipeline_parallel)
    size = state_bytes(strategies_of(layout, parameters=constants))
    sizes = (size.parameters[0], size.gradients[0], size.optimizer[0])
    assert tuple(map(float, sizes)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("transformer", "largest"),
    [(GPT_22B, 12 * 6144**2 / 2), (replace(GPT_22B, vocab_size=102400 * 6), 102400 * 6 * 6144 / 2)],
)
def test_zero_3_gathers_its_largest_layer(transformer: Transformer, largest: float) -> None:
    """4 bytes for each parameter of a layer, or of the embedding; nothing where a program keeps
    those of a pipeline's stage, and nothing under other stages."""
    chosen = [strategy(zero_stage=z, pipeline_parallel=p) for z, p in ((3, 1), (3, 4), (2, 1))]
    size = gather_memory(strategies_of(*chosen, transformer=transformer))
    assert size.tolist() == pytest.approx([4 * largest, 4 * largest, 0])
    keeping = replace(paper_bytes(FRONTIER), keeps_gathered=1.0)
    size = gather_memory(strategies_of(*chosen, transformer=transformer, parameters=keeping))
    assert size.tolist() == pytest.approx([4 * largest, 0, 0])
