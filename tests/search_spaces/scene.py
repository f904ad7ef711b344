"""Models, machines and strategies that several tests of this folder start from."""

from __future__ import annotations

from typing import Any

from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

FRONTIER = load_machine("frontier")
GPT_175B = load_model("gpt-175b")


def strategy(**changes: Any) -> Strategy:
    """A sound layout of 175B on two Frontier nodes, with changes."""
    sound: dict[str, Any] = {
        "tensor_parallel": 4,
        "pipeline_parallel": 4,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "zero_stage": 1,
        "num_nodes": 2,
    }
    return Strategy(**sound | changes)


def table_v() -> SearchSpace:
    return SearchSpace.build(GPT_175B, FRONTIER, nodes=16, choices=load_space("table-v"))
