"""Strategies that the cost model estimates in a second: a lattice at once against one by one.

    python tests/benchmarks/cost_model_speed.py [--nodes N] [--alone N] [--repeat N]

Both ways estimate the same strategies of the same space in the same run, on one core; the ratio is
what the columns of the lattice are for. One by one is timed on a sample, drawn evenly from the
lattice. A calibration on 20 trials of the space is timed beside. Of a dense model and of one with
experts, the enumeration of the legal strategies is timed against the estimates of them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration
from search_spaces.catalog import load_machine, load_model
from search_spaces.space import SearchSpace
from tests.benchmarks.accuracy.speed import (
    MACHINE,
    MODEL,
    NODES,
    REPEATS,
    TRIALS,
    Question,
    seconds,
)

MIXTURE = ("deepseek-v3", "dgx-h100", 32)


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
