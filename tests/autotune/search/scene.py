"""Spaces to search, and trials as a machine that obeys the cost model would report them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from autotune.cost_model import estimate
from autotune.search import SearchTrial
from autotune.search.layouts import Layouts
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


@cache
def space_22b(*, nodes: int = 4) -> SearchSpace:
    """A thousand layouts on four Frontier nodes, of which a third fit."""
    return SearchSpace.build(
        load_model("gpt-22b"),
        load_machine("frontier"),
        nodes=nodes,
        choices={"activation_checkpointing": ["none", "full"]},
        batch=GlobalBatch(minimum=512, maximum=512),
    )


@cache
def space_table_v() -> SearchSpace:
    """175B on 16 Frontier nodes over the table-V grid: two GAS values, twins everywhere."""
    choices = {k: v for k, v in load_space("table-v").items() if k != "global_batch_size"}
    return SearchSpace.build(
        load_model("gpt-175b"), load_machine("frontier"), nodes=16, choices=choices
    )


def small_space(*, tensor_parallel: list[int], micro_batch_size: list[int]) -> SearchSpace:
    """A 1.4B model on one node, data parallel for the rest: everything fits."""
    return SearchSpace.build(
        load_model("gpt-1.4b"),
        load_machine("frontier"),
        nodes=1,
        choices={
            "tensor_parallel": tensor_parallel,
            "pipeline_parallel": 1,
            "micro_batch_size": micro_batch_size,
            "gradient_accumulation_steps": 8,
            "zero_stage": 1,
            "num_nodes": 1,
        },
    )


_LAYOUTS: dict[int, tuple[SearchSpace, Layouts]] = {}
"""By the identity of the space, which is kept so that no other takes it."""


def layouts_of(space: SearchSpace) -> Layouts:
    if id(space) not in _LAYOUTS:
        _LAYOUTS[id(space)] = space, Layouts.of(space, objective="tokens_per_s")
    return _LAYOUTS[id(space)][1]


def ok(space: SearchSpace, strategy: Strategy, *, factor: float = 1.0) -> SearchTrial:
    """As predicted, `factor` times as fast."""
    lattice = Lattice.of([strategy], gpus_per_node=space.machine.gpus_per_node)
    predicted = estimate(space.transformer, space.machine, lattice)
    return SearchTrial(
        strategy=strategy,
        state="ok",
        iteration_time_s=float(predicted.iteration_time_s[0]) / factor,
        peak_memory_gib=float(predicted.memory_gib[0]),
    )


def oom(strategy: Strategy) -> SearchTrial:
    return SearchTrial(strategy=strategy, state="failed", out_of_memory=True)


def crashed(strategy: Strategy, *, cause: str = "") -> SearchTrial:
    return SearchTrial(strategy=strategy, state="failed", cause=cause)


def running(strategies: Iterable[Strategy]) -> list[SearchTrial]:
    return [SearchTrial(strategy=strategy, state="running") for strategy in strategies]
