"""Strategies that the cost model estimates in a second: a lattice at once against one by one.

    python tests/benchmarks/cost_model_speed.py [--nodes N] [--alone N] [--repeat N]

Both ways estimate the same strategies of the same space in the same run; the ratio is what the
columns of the lattice are for. One by one is timed on a sample, drawn evenly from the lattice.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from autotune.cost_model import estimate
from search_spaces.catalog import load_machine, load_model
from search_spaces.space import SearchSpace


def seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Median seconds of `work`, after one call that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=64, help="of Frontier, for 175B")
    parser.add_argument("--alone", type=int, default=300, help="strategies estimated one by one")
    parser.add_argument("--repeat", type=int, default=5)
    chosen = parser.parse_args()
    model, machine = load_model("gpt-175b"), load_machine("frontier")
    lattice = SearchSpace.build(model, machine, nodes=chosen.nodes, choices={}).lattice()
    rows = np.linspace(0, len(lattice) - 1, min(chosen.alone, len(lattice))).astype(np.int64)
    single = [lattice.take(row) for row in rows[:, np.newaxis]]

    together_s = seconds(lambda: estimate(model, machine, lattice), repeat=chosen.repeat)
    alone_s = seconds(lambda: [estimate(model, machine, one) for one in single], repeat=1)
    whole = estimate(model, machine, lattice).iteration_time_s[rows]
    apart = [estimate(model, machine, one).iteration_time_s[0] for one in single]
    if not np.allclose(whole, apart):
        raise SystemExit("a lattice and its strategies differ")

    at_once, one_by_one = len(lattice) / together_s, len(single) / alone_s
    print(f"{len(lattice)} strategies at once: {at_once:,.0f} strategies/s ({together_s:.3f} s)")
    print(f"{len(single)} of them one by one: {one_by_one:,.0f} strategies/s ({alone_s:.3f} s)")
    print(f"ratio: {at_once / one_by_one:,.0f}")


if __name__ == "__main__":
    main()
