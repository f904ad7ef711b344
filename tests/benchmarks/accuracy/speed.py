"""How fast the cost model estimates, and how long a calibration takes, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np

from autotune.calibration import Calibration, Observation
from autotune.cost_model import Estimate, Parameters, estimate, perturbed
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

MODEL, MACHINE, NODES = "gpt-175b", "frontier", 64
TRIALS = 20
REPEATS = 5
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


@dataclass(frozen=True, eq=False)
class Question:
    """A model, a machine and all strategies of the default space."""

    model: Transformer
    machine: Machine
    lattice: Lattice

    @classmethod
    def of_size(cls, nodes: int) -> Question:
        """175B on so many Frontier nodes."""
        model, machine = load_model(MODEL), load_machine(MACHINE)
        space = SearchSpace.build(model, machine, nodes=nodes, choices={})
        return cls(model, machine, space.lattice())

    def estimate(self, lattice: Lattice | None = None) -> Estimate:
        return estimate(self.model, self.machine, self.lattice if lattice is None else lattice)

    def singles(self, count: int) -> tuple[list[int], list[Lattice]]:
        """Rows drawn evenly from the lattice, and each as a lattice of its own."""
        size = len(self.lattice)
        rows = np.linspace(0, size - 1, min(count, size)).astype(np.int64)
        return rows.tolist(), [self.lattice.take(row) for row in rows[:, np.newaxis]]

    def trials(self, count: int) -> list[Observation]:
        """What trials on a machine would show that differs from what is generally known."""
        truth = perturbed(Parameters.default(self.machine), seed=0)
        generator = np.random.default_rng(0)
        observed: list[Observation] = []
        for single in self.singles(count)[1]:
            real = estimate(self.model, self.machine, single, parameters=truth)
            noise = float(np.exp(generator.normal(0.0, NOISE)))
            observed.append(
                Observation(
                    transformer=self.model,
                    strategy=single.strategy(0),
                    iteration_time_s=float(real.iteration_time_s[0]) * noise,
                    peak_memory_gib=float(real.memory_gib[0]),
                    fitted=True,
                )
            )
        return observed


def seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Median seconds of `work`, after one call that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def speed(*, nodes: int = NODES, repeat: int = REPEATS) -> Speed:
    """Measured now; the caller sees to it that libraries use one thread."""
    question = Question.of_size(nodes)
    one, trials = question.singles(1)[1][0], question.trials(TRIALS)
    return Speed(
        strategies=len(question.lattice),
        strategies_per_second=len(question.lattice) / seconds(question.estimate, repeat=repeat),
        microseconds_for_one=1e6 * seconds(lambda: question.estimate(one), repeat=20 * repeat),
        calibration_seconds=seconds(
            lambda: Calibration.of(question.machine, trials), repeat=repeat
        ),
    )
