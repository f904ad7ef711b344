"""Calibration documents as tests save and import them."""

from __future__ import annotations

from typing import Any

from autotune.calibration import Observation
from autotune.calibration.document import observation_shape
from autotune.cost_model import estimate
from autotune.resolution import machine_shape
from autotune.schemas.calibrations import CalibrationDocument
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy

STRATEGY: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 320,
    "zero_stage": 1,
    "num_nodes": 2,
}


def document(
    machine: Machine | str = "frontier", *, slower: float = 1.5, simulated: bool = False
) -> CalibrationDocument:
    """Two trials of 22B, each `slower` than estimated, and one that ran out of memory."""
    on = load_machine(machine) if isinstance(machine, str) else machine
    transformer = load_model("gpt-22b")
    strategies = [Strategy(**(STRATEGY | {"micro_batch_size": size})) for size in (1, 2)]
    lattice = Lattice.of(strategies, gpus_per_node=on.gpus_per_node)
    seconds = slower * estimate(transformer, on, lattice).iteration_time_s
    ran = [
        Observation(
            transformer=transformer, strategy=strategy, iteration_time_s=float(each), fitted=True
        )
        for strategy, each in zip(strategies, seconds, strict=True)
    ]
    whole = Strategy(**(STRATEGY | {"pipeline_parallel": 1}))
    failed = Observation(transformer=transformer, strategy=whole, fitted=False)
    return CalibrationDocument(
        machine=machine_shape(on),
        software="stack 1",
        simulated=simulated,
        observations=[observation_shape(shown) for shown in (*ran, failed)],
    )
