"""Exported calibrations for tests, written without a service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from autotune.cost_model import estimate
from autotune.resolution import machine_shape, model_shape, strategy_shape
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy

STRATEGIES = tuple(
    Strategy(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        micro_batch_size=micro_batch_size,
        gradient_accumulation_steps=16,
        zero_stage=1,
        num_nodes=2,
    )
    for tensor_parallel, pipeline_parallel in ((2, 8), (4, 4), (8, 2), (4, 2))
    for micro_batch_size in (1, 2)
)


def slower(factor: float, *, model: str = "gpt-22b", machine: str = "frontier") -> dict[str, Any]:
    """A calibration on trials that all took `factor` of what is generally expected."""
    transformer, described = load_model(model), load_machine(machine)
    lattice = Lattice.of(STRATEGIES, gpus_per_node=described.gpus_per_node)
    expected = estimate(transformer, described, lattice).iteration_time_s
    shape = model_shape(transformer).model_dump(mode="json")
    return {
        "format": "autotune-calibration-1",
        "machine": machine_shape(described).model_dump(mode="json"),
        "software": "a slow stack",
        "simulated": False,
        "observations": [
            {
                "model": shape,
                "strategy": strategy_shape(strategy).model_dump(mode="json"),
                "iteration_time_s": factor * float(seconds),
                "fitted": True,
            }
            for strategy, seconds in zip(STRATEGIES, expected, strict=True)
        ],
    }


def written(path: Path, content: object) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)
