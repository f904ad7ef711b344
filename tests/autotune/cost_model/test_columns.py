"""Many strategies, several models and many sets of constants at once: each as if it were alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.calibration.quantity import Quantity, iteration_time_s, memory_gib
from autotune.cost_model import Parameters, estimate
from autotune.cost_model.columns import ABSENT, REST, SHAPE, STRATEGY, Columns, distinct
from autotune.cost_model.estimate import BLOCK
from autotune.cost_model.strategies import Strategies
from search_spaces.dimensions import TABLE, Dimension
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import (
    CPU,
    DGX_A100,
    FRONTIER,
    GPT_22B,
    GPT_175B,
    LLAMA,
    columns,
    cost,
    machines,
    models,
    strategies,
    strategy,
    unhurried,
)


@unhurried
@given(st.lists(strategies, min_size=2, max_size=6), models, machines)
def test_a_lattice_is_its_strategies(
    chosen: list[Strategy], transformer: Transformer, machine: Machine
) -> None:
    together = cost(*chosen, transformer=transformer, machine=machine)
    apart = [cost(one, transformer=transformer, machine=machine) for one in chosen]
    for name, times in together.time_parts_s.items():
        assert times == pytest.approx([float(e.time_parts_s[name][0]) for e in apart], rel=1e-9)
    for name, sizes in together.memory_parts_gib.items():
        assert sizes == pytest.approx([float(e.memory_parts_gib[name][0]) for e in apart], rel=1e-9)
    assert together.fits.tolist() == [bool(e.fits[0]) for e in apart]


@pytest.mark.parametrize(
    "change",
    [
        {"tensor_parallel": 4},
        {"pipeline_parallel": 1},
        {"virtual_stages": 2},
        {"micro_batch_size": 3},
        {"gradient_accumulation_steps": 17},
        {"zero_stage": 0},
        {"num_nodes": 1},
        {"activation_checkpointing": "none"},
        {"activation_checkpointing": "selective"},
        {"sequence_parallel": True},
        {"flash_attention": False},
        {"precision": "fp32"},
    ],
    ids=str,
)
def test_two_strategies_that_differ_in_one_dimension(change: dict[str, Any]) -> None:
    """What they share is worked out once, and what they do not share is not."""
    pair = (strategy(), strategy(**change))
    together, apart = cost(*pair), [cost(each) for each in pair]
    for name, times in together.time_parts_s.items():
        assert times == pytest.approx([float(e.time_parts_s[name][0]) for e in apart], rel=1e-9)
    assert together.iteration_time_s[0] != together.iteration_time_s[1]


@unhurried
@given(st.lists(st.tuples(models, strategies), min_size=2, max_size=5), machines)
def test_stacked_models_are_those_models(
    chosen: list[tuple[Transformer, Strategy]], machine: Machine
) -> None:
    parts = [columns(s, transformer=t, machine=machine) for t, s in chosen]
    stacked = Strategies(Columns.stack(parts), machine, Parameters.default(machine))
    apart = [cost(s, transformer=t, machine=machine) for t, s in chosen]
    times = [float(each.iteration_time_s[0]) for each in apart]
    sizes = [float(each.memory_gib[0]) for each in apart]
    assert iteration_time_s(stacked).tolist() == pytest.approx(times, rel=1e-9)
    assert memory_gib(stacked).tolist() == pytest.approx(sizes, rel=1e-9)


@pytest.mark.parametrize("machine", [FRONTIER, DGX_A100, CPU])
@pytest.mark.parametrize("of_memory", [False, True])
def test_many_sets_of_constants_are_each_of_them(machine: Machine, of_memory: bool) -> None:
    """One column of shape (k, 1) for each constant, over several models."""
    layouts = [
        strategy(zero_stage=z, pipeline_parallel=p, activation_checkpointing=c, flash_attention=f)
        for z, p in ((0, 4), (3, 1), (2, 1))
        for c, f in (("full", True), ("selective", False), ("none", False))
    ]
    stacked = Columns.stack(
        [columns(*layouts, transformer=t, machine=machine) for t in (GPT_22B, LLAMA)]
    )
    quantity = Quantity(machine=machine, prior=Parameters.default(machine), of_memory=of_memory)
    z = np.random.default_rng(0).normal(size=(5, len(quantity.names)))
    labelled = np.zeros(len(stacked))
    together = quantity.log_value(z, stacked, labelled)
    assert together.shape == (5, 18)
    for row, one in zip(together, z, strict=True):
        alone = quantity.log_value(one, stacked, labelled)
        assert row.tolist() == pytest.approx(np.ravel(alone).tolist(), rel=1e-12)


def test_more_rows_than_a_block() -> None:
    """The rows of a second block and of the first alike."""
    layouts = [
        strategy(gradient_accumulation_steps=m, micro_batch_size=b)
        for m in range(1, BLOCK // 8 + 9)
        for b in range(1, 9)
    ]
    whole = cost(*layouts)
    assert len(layouts) > BLOCK
    for row in (0, BLOCK - 1, BLOCK, len(layouts) - 1):
        alone = cost(layouts[row])
        assert whole.iteration_time_s[row] == pytest.approx(alone.iteration_time_s[0], rel=1e-12)
        assert whole.memory_gib[row] == pytest.approx(alone.memory_gib[0], rel=1e-12)


def test_no_strategies() -> None:
    empty = Lattice.of([strategy()], gpus_per_node=8).take(np.array([], dtype=np.int64))
    estimated = estimate(GPT_22B, FRONTIER, empty)
    assert (
        estimated.iteration_time_s.shape
        == estimated.memory_gib.shape
        == estimated.fits.shape
        == (0,)
    )
    assert len(Columns.none()) == 0
    assert Columns.none().values.keys() == columns(strategy()).values.keys()


def test_an_illegal_strategy_gets_some_figure() -> None:
    """More ranks than GPUs: no error, and nothing infinite."""
    costs = cost(strategy(tensor_parallel=8, pipeline_parallel=64, num_nodes=1))
    assert np.isfinite(costs.iteration_time_s).all()
    assert np.isfinite(costs.memory_gib).all()


def test_columns_of_a_strategy() -> None:
    layout = strategy(activation_checkpointing="selective", sequence_parallel=True)
    one = columns(layout, transformer=GPT_175B)
    assert set(one.values) == {*SHAPE, *STRATEGY, *REST, *ABSENT}
    expected = {
        "data_parallel": 2,
        "zero_shard_gpus": 2,
        "world_size": 16,
        "sequence_parallel": 1,
        "selective_checkpointing": 1,
        "full_checkpointing": 0,
        "fp32": 0,
        "num_query_groups": 96,
        "tied_embeddings": 1,
    }
    for name, value in {**expected, **ABSENT}.items():
        assert np.broadcast_to(one[name], 1).tolist() == [value]


@pytest.mark.parametrize("dimension", [d for d in TABLE if d.columns], ids=lambda d: d.name)
def test_each_value_of_a_dimension_without_an_order(dimension: Dimension) -> None:
    """In a lattice of all values, and of each alone."""
    layouts = [strategy(**{dimension.name: value}) for value in dimension.values]
    together = columns(*layouts)
    for column, values in dimension.columns.items():
        expected = [float(value in values) for value in dimension.values]
        assert together[column].tolist() == expected
        assert [columns(layout)[column].max() for layout in layouts] == expected


def test_stacking_keeps_rows_and_taking_chooses_them() -> None:
    first = columns(strategy(), strategy(tensor_parallel=4))
    second = columns(strategy(tensor_parallel=8), transformer=LLAMA)
    stacked = Columns.stack([first, second])
    assert len(stacked) == 3
    assert stacked["tensor_parallel"].tolist() == [2, 4, 8]
    assert stacked["hidden_size"].tolist() == [6144, 6144, 4096]
    taken = stacked.take(np.array([2, 0]))
    assert len(taken) == 2
    assert taken["num_layers"].tolist() == [32, 48]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0, 1, 2000, 2_000_000]), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_distinct_rows(rows: list[tuple[int, int, bool]]) -> None:
    """As many as there are combinations, each where it is met first, and each row finds its own."""
    table = [np.array(column) for column in zip(*rows, strict=True)]
    first, which = distinct(table, rows=len(rows))
    assert sorted(rows[at] for at in first) == sorted(set(rows))
    assert all(rows[first[group]] == row for row, group in zip(rows, which, strict=True))
    assert all(rows.index(rows[at]) == at for at in first)


def test_one_row_where_all_columns_agree() -> None:
    first, which = distinct([np.array(3.0), np.array(1.0)], rows=4)
    assert (first.tolist(), which.tolist()) == ([0], [0, 0, 0, 0])


def test_a_model_changes_what_its_shape_says() -> None:
    """No column of the shape is lost on the way: each changes time or memory."""
    plain = replace(
        LLAMA, num_query_groups=32, hidden_size=4096, tied_embeddings=True, vocab_size=128000
    )
    changes: dict[str, object] = {
        "num_layers": 48,
        "hidden_size": 6144,
        "num_attention_heads": 64,
        "num_query_groups": 8,
        "head_dim": 256,
        "ffn_hidden_size": 16384,
        "seq_length": 4096,
        "vocab_size": 32000,
        "gated_mlp": False,
        "tied_embeddings": False,
    }
    assert {"head_width" if name == "head_dim" else name for name in changes} == set(SHAPE)
    layout = strategy(pipeline_parallel=1, flash_attention=False)
    before = cost(layout, transformer=plain)
    for name, value in changes.items():
        after = cost(layout, transformer=replace(plain, **{name: value}))  # type: ignore[arg-type]
        assert after.iteration_time_s[0] != before.iteration_time_s[0]
        assert after.memory_gib[0] != before.memory_gib[0]
