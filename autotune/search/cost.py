"""What a trial costs: the nodes that it holds, and how long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.measurement import SECONDS_PER_HOUR, probe_accumulations
from autotune.search.layouts import Floats
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """How trials of a campaign run.

    Attributes:
        start_up_s: before a trial's first iteration: imports, communicators, weights.
        iterations: expected at each GAS that it measures, warm-up included.
        time_limit_s: at which it ends in any case.
    """

    start_up_s: float = 60.0
    iterations: int = 4
    time_limit_s: float = 1200.0

    def node_hours(self, lattice: Lattice, iteration_time_s: Floats) -> Floats:
        """Return the node-hours of one trial of each strategy, shape (n,).

        Args:
            iteration_time_s: shape (n,), at each strategy's own GAS.
        """
        busy_s = self.iterations * iteration_time_s * _probes_for_each_iteration(lattice)
        trial_s = np.minimum(self.start_up_s + busy_s, self.time_limit_s)
        return np.asarray(lattice["num_nodes"] * trial_s / SECONDS_PER_HOUR, dtype=np.float64)

    def confirmation_node_hours(self, strategy: Strategy, *, iteration_time_s: float) -> float:
        """Return the node-hours of measuring a strategy once more, at its own GAS alone."""
        return (
            strategy.num_nodes
            * (self.start_up_s + self.iterations * iteration_time_s)
            / SECONDS_PER_HOUR
        )


def _probes_for_each_iteration(lattice: Lattice) -> Floats:
    """Return how long one iteration at every GAS that a trial measures takes, in iterations at the
    strategy's own GAS, shape (n,); by the law `GAS + bubble` (see `AccumulationLaw`)."""
    bubble = (lattice["pipeline_parallel"] - 1) / lattice["virtual_stages"]
    slots = [
        sum(gas + wait for gas in probe_accumulations(strategy))
        for strategy, wait in zip(lattice, bubble.tolist(), strict=True)
    ]
    return np.asarray(slots / (lattice["gradient_accumulation_steps"] + bubble))
