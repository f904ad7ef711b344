"""A machine that is half as fast as is generally known, as its trials show it."""

from __future__ import annotations

from functools import cache

import numpy as np

from autotune.calibration import Calibration, Observation
from autotune.cost_model import estimate
from autotune.schemas.spaces import SpaceSpec
from search_spaces.catalog import load_machine, load_model
from search_spaces.space import SearchSpace

SLOWER = 2.0
OBSERVED = 30

SMALL = SpaceSpec(
    tensor_parallel=[1, 2, 4, 8],
    pipeline_parallel=[1, 2, 4, 8],
    micro_batch_size=[1, 2, 4],
    gradient_accumulation_steps=[8, 64],
    zero_stage=1,
    num_nodes=2,
)


@cache
def slow(machine: str = "frontier", *, model: str = "gpt-22b", nodes: int = 2) -> Calibration:
    """Trials of strategies all over a space, each `SLOWER` than estimated, memory as estimated."""
    transformer, of_machine = load_model(model), load_machine(machine)
    space = SearchSpace.build(transformer, of_machine, nodes=nodes, choices={})
    estimated = estimate(transformer, of_machine, space.lattice())
    fitting = np.flatnonzero(estimated.fits)
    rows = np.random.default_rng(0).choice(fitting, OBSERVED, replace=False)
    observations = [
        Observation(
            transformer=transformer,
            strategy=space.lattice().strategy(row),
            iteration_time_s=SLOWER * float(estimated.iteration_time_s[row]),
            peak_memory_gib=float(estimated.memory_gib[row]),
            fitted=True,
        )
        for row in rows
    ]
    return Calibration.of(of_machine, observations, software="a slow stack")
