from __future__ import annotations

from dataclasses import MISSING, fields

import numpy as np

from search_spaces.dimensions import DIMENSIONS, TABLE
from search_spaces.errors import InvalidInput, InvalidInputs, closest
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from tests.search_spaces.scene import strategy


def test_batch_and_world_of_a_strategy() -> None:
    chosen = strategy(num_nodes=6, micro_batch_size=2)
    assert chosen.model_parallel == 16
    assert chosen.world_size(8) == 48
    assert chosen.data_parallel(8) == 3
    assert chosen.global_batch_size(8) == 2 * 8 * 3


def test_twins_differ_in_accumulation_alone() -> None:
    chosen = strategy()
    assert chosen.with_accumulation(64).gradient_accumulation_steps == 64
    assert chosen.with_accumulation(64).layout_key() == chosen.layout_key()
    assert strategy(zero_stage=0).layout_key() != chosen.layout_key()


def test_a_strategy_in_one_line() -> None:
    line = "TP 4 · PP 4 · MBS 1 · GAS 8 · ZeRO-1 · 2 nodes · full recompute · bf16"
    assert strategy().short() == line
    rich = strategy(num_nodes=1, virtual_stages=2, sequence_parallel=True).short()
    assert "1 node ·" in rich
    assert "VP 2 · SP" in rich


def test_a_lattice_gives_its_strategies_back() -> None:
    chosen = [strategy(), strategy(num_nodes=6), strategy(precision="fp16")]
    lattice = Lattice.of(chosen, gpus_per_node=8)
    assert list(lattice) == chosen
    assert len(lattice) == 3
    assert lattice.data_parallel.tolist() == [s.data_parallel(8) for s in chosen]
    assert lattice.global_batch_size.tolist() == [s.global_batch_size(8) for s in chosen]
    assert list(lattice.take(np.array([2, 0]))) == [chosen[2], chosen[0]]
    assert Strategy(**chosen[0].as_dict()) == chosen[0]


def test_a_refusal_tells_field_value_reason_and_what_would_do() -> None:
    problem = InvalidInput("nodes", 0, "at least one node is needed", valid="1 to 4")
    assert str(problem) == "nodes=0: at least one node is needed (valid: 1 to 4)"
    both = InvalidInputs([problem, InvalidInput("model", "x", "no such model")])
    assert str(both).endswith("; model='x': no such model")


def test_closest_names_come_best_first() -> None:
    assert closest("FRONTEIR", ["aurora", "frontier", "polaris"]) == ["frontier"]
    assert closest("zzz", ["aurora"]) == []
    fields = ["gpu", "gpus_per_node", "max_nodes"]
    assert closest("gpus", fields)[0] == "gpus_per_node"
    assert closest("gpu", fields)[0] == "gpu"


def test_a_strategy_has_a_field_for_each_dimension() -> None:
    """`Strategy` is typed, and so written out: nothing else may drift from the table."""
    defaults = {
        field.name: None if field.default is MISSING else field.default
        for field in fields(Strategy)
        if field.name != "settings"
    }
    assert defaults == {dimension.name: dimension.default for dimension in TABLE}
    assert tuple(defaults) == DIMENSIONS


def test_a_value_belongs_to_its_dimension() -> None:
    for dimension in TABLE:
        for value in (dimension.neutral, dimension.default):
            assert value is None or value in (dimension.values or (1,))


def test_nothing_stands_for_two_dimensions() -> None:
    for words in (
        [dimension.short for dimension in TABLE],
        [dimension.option for dimension in TABLE if dimension.option],
        [key for dimension in TABLE for key in dimension.keys],
        [option for dimension in TABLE for option in dimension.megatron if option],
        [column for dimension in TABLE for column in dimension.columns],
    ):
        assert len(words) == len(set(words))
