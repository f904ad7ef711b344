"""A trial to start."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.search.trial import SearchTrial
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A strategy to try, and the prediction for its trial.

    Attributes:
        stand_in: the smaller run in its place, if any; time, memory, fit and node-hours are the
            stand-in's.
        objective: of the strategy, at `iteration_time_s`.
        iteration_time_s: with the ends of the 80 % interval of a measurement.
        memory_gib: median of the fullest rank's peak.
        fit_probability: probability that memory suffices, with the headroom free.
        node_hours: expected if the trial runs to its end.
        best_so_far: objective of the best measured layout at the time of the choice.
        probability_better: probability that the strategy is better, if it fits.
        expected_saving: share of a training's time saved on average by measuring it, including its
            chance of fitting; None if it was chosen by another search, or to check projections.
            These three are None before any measurement.
        num_layers: layers of the stand-in, if fewer than the model's.
    """

    strategy: Strategy
    stand_in: Strategy | None
    objective: float
    iteration_time_s: float
    iteration_time_low_s: float
    iteration_time_high_s: float
    memory_gib: float
    fit_probability: float
    node_hours: float
    best_so_far: float | None
    probability_better: float | None
    expected_saving: float | None = None
    num_layers: int | None = None

    @property
    def run(self) -> Strategy:
        return self.stand_in or self.strategy

    @property
    def running(self) -> SearchTrial:
        """Its trial, once it is started."""
        stands_for = self.strategy.num_nodes if self.stand_in else None
        return SearchTrial(
            strategy=self.run, state="running", stands_for=stands_for, num_layers=self.num_layers
        )
