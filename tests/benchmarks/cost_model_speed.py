"""Strategies that the cost model estimates in a second: a lattice at once against one by one.

    python tests/benchmarks/cost_model_speed.py [--nodes N] [--alone N] [--repeat N]

Both ways estimate the same strategies of the same space in the same run, on one core; the ratio is
what the columns of the lattice are for. One by one is timed on a sample, drawn evenly from the
lattice. A calibration on 20 trials of the space is timed beside. Of a dense model and of one with
experts, the enumeration of the legal strategies is timed against the estimates of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration, Observation
from autotune.cost_model import Estimate, Parameters, estimate, perturbed
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES, help="of Frontier, for 175B")
    parser.add_argument("--alone", type=int, default=300, help="strategies estimated one by one")
    parser.add_argument("--repeat", type=int, default=REPEATS)
    chosen = parser.parse_args()
    with threadpool_limits(limits=1):
        compare(Question.of_size(chosen.nodes), alone=chosen.alone, repeat=chosen.repeat)
        for model, machine, nodes in ((MODEL, MACHINE, chosen.nodes), MIXTURE):
            enumerate_and_estimate(model, machine, nodes, repeat=chosen.repeat)


def compare(question: Question, *, alone: int, repeat: int) -> None:
    """Print all figures; SystemExit where the two ways differ in what they estimate."""
    lattice = question.lattice
    rows, single = question.singles(alone)
    trials = question.trials(TRIALS)
    together_s = seconds(question.estimate, repeat=repeat)
    alone_s = seconds(lambda: [question.estimate(one) for one in single], repeat=1)
    fitting_s = seconds(lambda: Calibration.of(question.machine, trials), repeat=repeat)
    whole = question.estimate().iteration_time_s[rows]
    apart = [question.estimate(one).iteration_time_s[0] for one in single]
    if not np.allclose(whole, apart):
        raise SystemExit("a lattice and its strategies differ")

    at_once, one_by_one = len(lattice) / together_s, len(single) / alone_s
    print(f"{len(lattice)} strategies at once: {at_once:,.0f} strategies/s ({together_s:.3f} s)")
    print(f"{len(single)} of them one by one: {one_by_one:,.0f} strategies/s ({alone_s:.3f} s)")
    print(f"ratio: {at_once / one_by_one:,.0f}")
    print(f"calibration on {len(trials)} trials: {fitting_s:.3f} s")


def enumerate_and_estimate(model: str, machine: str, nodes: int, *, repeat: int) -> None:
    """Print how many legal strategies are enumerated, and estimated, in a second."""
    space = SearchSpace.build(load_model(model), load_machine(machine), nodes=nodes, choices={})
    # A space keeps its enumeration: a copy of it has none yet.
    enumerating_s = seconds(lambda: replace(space).enumerate(), repeat=repeat)
    question = Question(space.transformer, space.machine, space.lattice())
    estimating_s = seconds(question.estimate, repeat=repeat)
    legal = len(question.lattice)
    print(
        f"{model} on {nodes} nodes of {machine}, {space.raw:,} points, {legal:,} legal: "
        f"{legal / enumerating_s:,.0f} enumerated/s, {legal / estimating_s:,.0f} estimated/s"
    )


if __name__ == "__main__":
    main()
