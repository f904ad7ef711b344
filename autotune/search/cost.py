"""The cost of a trial: its nodes times its duration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.measurement import SECONDS_PER_HOUR, measured_iterations, probe_range
from autotune.search.layouts import Floats
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """Duration of a campaign's trials.

    Attributes:
        start_up_s: before a trial's first iteration: imports, communicators, weights.
        warmup_iterations: at the smallest GAS of the trial.
        measured_iterations: expected at each measured GAS; long iterations need fewer.
        pipeline_ramp: time to fill and drain a pipeline relative to the steady rate, as the cost
            model's constant of that name.
        time_limit_s: maximum duration.
    """

    start_up_s: float = 60.0
    warmup_iterations: int = 1
    measured_iterations: int = 3
    pipeline_ramp: float = 1.0
    time_limit_s: float = 1200.0

    def node_hours(self, lattice: Lattice, iteration_time_s: Floats) -> Floats:
        """Return the node-hours of one trial of each strategy, shape (n,).

        Args:
            iteration_time_s: shape (n,), at each strategy's own GAS.
        """
        first_s, last_s = self._probe_times_s(lattice, iteration_time_s)
        busy_s = self.warmup_iterations * first_s + self._measuring_s(first_s)
        busy_s += np.where(last_s > first_s, self._measuring_s(last_s), 0.0)
        trial_s = np.minimum(self.start_up_s + busy_s, self.time_limit_s)
        return np.asarray(lattice["num_nodes"] * trial_s / SECONDS_PER_HOUR, dtype=np.float64)

    def confirmation_node_hours(
        self, strategy: Strategy, *, iteration_time_s: float, gpus_per_node: int
    ) -> float:
        """Return the node-hours of one more measurement of a strategy, at its own GAS alone."""
        lattice = Lattice.of([strategy], gpus_per_node=gpus_per_node)
        own_s = np.array([iteration_time_s])
        first_s, _ = self._probe_times_s(lattice, own_s)
        [busy_s] = self.warmup_iterations * first_s + self._measuring_s(own_s)
        return strategy.num_nodes * (self.start_up_s + float(busy_s)) / SECONDS_PER_HOUR

    def _measuring_s(self, iteration_time_s: Floats) -> Floats:
        count = measured_iterations(iteration_time_s, least=self.measured_iterations)
        return np.asarray(count * iteration_time_s)

    def _probe_times_s(self, lattice: Lattice, iteration_time_s: Floats) -> tuple[Floats, Floats]:
        """Return the seconds of an iteration at the smallest and the largest measured GAS, shape
        (n,) each, by the law `GAS + bubble` (see `AccumulationLaw`)."""
        stages, groups = lattice["pipeline_parallel"], lattice["virtual_stages"]
        bubble = self.pipeline_ramp * (stages - 1) / groups
        slot_s = iteration_time_s / (lattice["gradient_accumulation_steps"] + bubble)
        first, last = probe_range(
            accumulation=lattice["gradient_accumulation_steps"],
            stages=stages,
            virtual_stages=groups,
        )
        return (first + bubble) * slot_s, (last + bubble) * slot_s
