"""Strategies that the cost model estimates in a second: a lattice at once against one by one.

    python tests/benchmarks/cost_model_speed.py [--nodes N] [--repeat N]

Both in the same run, on one core; the ratio is what the columns of the lattice are for. A
calibration on 20 trials of the space is timed, too. Of a dense model and of one with experts, the
enumeration of the legal strategies is timed against the estimates of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration, Observation
from autotune.cost_model import Parameters, estimate, perturbed
from search_spaces.catalog import load_machine, load_model
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

MIXTURE = ("deepseek-v3", "dgx-h100", 32)
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
    model, machine = load_model(MODEL), load_machine(MACHINE)
    lattice = SearchSpace.build(model, machine, nodes=nodes, choices={}).lattice()
    rows = np.linspace(0, len(lattice) - 1, TRIALS).astype(np.int64)
    singles = [lattice.take(row) for row in rows[:, np.newaxis]]
    known = trials(machine, model, singles)

    def estimating_s(some: Lattice, *, repeat: int) -> float:
        return seconds(lambda: estimate(model, machine, some), repeat=repeat)

    return Speed(
        strategies=len(lattice),
        strategies_per_second=len(lattice) / estimating_s(lattice, repeat=repeat),
        microseconds_for_one=1e6 * estimating_s(singles[0], repeat=20 * repeat),
        calibration_seconds=seconds(lambda: Calibration.of(machine, known), repeat=repeat),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES, help="of Frontier, for 175B")
    parser.add_argument("--repeat", type=int, default=REPEATS)
    chosen = parser.parse_args()
    with threadpool_limits(limits=1):
        found = speed(nodes=chosen.nodes, repeat=chosen.repeat)
        alone = 1e6 / found.microseconds_for_one
        print(f"{found.strategies} strategies at once: {found.strategies_per_second:,.0f}/s")
        print(f"one by one: {alone:,.0f}/s; ratio: {found.strategies_per_second / alone:,.0f}")
        print(f"calibration on {TRIALS} trials: {found.calibration_seconds:.3f} s")
        for model, machine, nodes in ((MODEL, MACHINE, chosen.nodes), MIXTURE):
            enumerate_and_estimate(model, machine, nodes, repeat=chosen.repeat)


def enumerate_and_estimate(model: str, machine: str, nodes: int, *, repeat: int) -> None:
    """Print how many legal strategies are enumerated, and estimated, in a second."""
    space = SearchSpace.build(load_model(model), load_machine(machine), nodes=nodes, choices={})
    # A space keeps its enumeration: a copy of it has none yet.
    enumerating_s = seconds(lambda: replace(space).enumerate(), repeat=repeat)
    lattice = space.lattice()
    estimating_s = seconds(
        lambda: estimate(space.transformer, space.machine, lattice), repeat=repeat
    )
    legal = len(lattice)
    print(
        f"{model} on {nodes} nodes of {machine}, {space.raw:,} points, {legal:,} legal: "
        f"{legal / enumerating_s:,.0f} enumerated/s, {legal / estimating_s:,.0f} estimated/s"
    )


if __name__ == "__main__":
    main()
