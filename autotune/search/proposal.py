"""A trial that is worth starting."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.search.trial import SearchTrial
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A strategy to try, and what is expected of its trial before it runs.

    Attributes:
        stand_in: what is run instead, on fewer nodes: time, memory, fit and node-hours are its.
        objective: of the strategy, where the run takes `iteration_time_s`.
        iteration_time_s: with the ends of the 80 % interval of what would be measured.
        memory_gib: median of the fullest rank's peak.
        fit_probability: that memory suffices, with the headroom left.
        node_hours: that the trial is expected to take if it runs to its end.
        best_so_far: the objective of the best measured layout when this one was chosen.
        probability_better: that the strategy turns out to be better, if it fits.
        expected_saving: share of a training's time that is won by measuring it, on average and with
            its chance to fit; None for what was chosen elsewhere, or to show whether projections
            come true. These three are None while nothing is measured.
        num_layers: that the stand-in is run with, where fewer than the model has.
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
