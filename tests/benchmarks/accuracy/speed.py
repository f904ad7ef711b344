"""Strategies that the cost model estimates in a second: a lattice at once against one by one."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from autotune.calibration import Calibration, Observation
from autotune.cost_model import Parameters, estimate, perturbed
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

MODEL, MACHINE, NODES = "gpt-175b", "frontier", 64
TRIALS, REPEATS = 20, 5
NOISE = 0.02
"""Standard deviation of a trial's time, as a logarithm."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """On one core.

    Attributes:
        strategies: of the lattice that is estimated at once.
        microseconds_for_one: a lattice of one.
        calibration_seconds: on 20 trials, time and memory.
    """

    strategies: int
    strategies_per_second: float
    microseconds_for_one: float
    calibration_seconds: float


def trials(machine: Machine, model: Transformer, singles: Sequence[Lattice]) -> list[Observation]:
    """What trials on a machine would show that differs from what is generally known."""
    truth = perturbed(Parameters.default(machine), seed=0)
    generator = np.random.default_rng(0)
    observed: list[Observation] = []
    for single in singles:
        real = estimate(model, machine, single, parameters=truth)
        noise = float(np.exp(generator.normal(0.0, NOISE)))
        observed.append(
            Observation(
                transformer=model,
                strategy=single.strategy(0),
                iteration_time_s=float(real.iteration_time_s[0]) * noise,
                peak_memory_gib=float(real.memory_gib[0]),
                fitted=True,
            )
        )
    return observed


def seconds(work: Callable[[], object], *, repeat: int = REPEATS) -> float:
    """Median seconds of `work`, after one call that is not counted."""
    return median(timeit.repeat(work, number=1, repeat=repeat + 1)[1:])


def speed() -> Speed:
    """Measured now; the caller sees to it that libraries use one thread."""
    model, machine = load_model(MODEL), load_machine(MACHINE)
    lattice = SearchSpace.build(model, machine, nodes=NODES, choices={}).lattice()
    rows = np.linspace(0, len(lattice) - 1, TRIALS).astype(np.int64)
    singles = [lattice.take(row) for row in rows[:, np.newaxis]]
    known = trials(machine, model, singles)
    at_once_s = seconds(lambda: estimate(model, machine, lattice))
    alone_s = seconds(lambda: estimate(model, machine, singles[0]), repeat=20 * REPEATS)
    return Speed(
        strategies=len(lattice),
        strategies_per_second=len(lattice) / at_once_s,
        microseconds_for_one=1e6 * alone_s,
        calibration_seconds=seconds(lambda: Calibration.of(machine, known)),
    )
