"""A trial to start, with its expected results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of
from autotune.search.cost import TrialCost
from autotune.search.evidence import Evidence, Known
from autotune.search.stand_ins import StandIns
from autotune.search.trial import SearchTrial
from search_spaces.lattice import Lattice
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


@dataclass(frozen=True, kw_only=True)
class TrialExpectation:
    """Predicts trials with calibrated costs.

    Attributes:
        cost: of a trial.
        stand_ins: smaller runs that may replace layouts; None if all layouts run in full.
    """

    evidence: Evidence
    cost: TrialCost
    stand_ins: StandIns | None

    def of(
        self,
        known: Known,
        strategy: Strategy,
        instead: Strategy | None,
        *,
        expected_saving: float | None = None,
    ) -> Proposal:
        """Return the proposal of a strategy, in full or with a stand-in (`instead`)."""
        calibration = self.evidence.calibration(known.ended)
        run = SearchTrial(strategy=strategy, state="running")
        if instead is not None and self.stand_ins is not None:
            run = SearchTrial(
                strategy=instead,
                state="running",
                stands_for=strategy.num_nodes,
                num_layers=self.stand_ins.num_layers,
            )
        space = self.evidence.space
        lattice = Lattice.of([run.strategy], gpus_per_node=space.machine.gpus_per_node)
        columns = columns_of([run.run(space.transformer)], space.machine)
        time, left_open, variance = calibration.time.predict(columns)
        seconds, factor = float(np.exp(time[0])), float(np.exp(Z * np.sqrt(variance[0])))
        fits = calibration.fit_probability(columns, headroom_gib=self.evidence.headroom_gib)
        log_rate = self.evidence.work_of(run, known) - float(time[0])
        better = None
        if known.best is not None:
            better = float(
                scipy.special.ndtr((log_rate - known.best) / max(float(left_open[0]) ** 0.5, 1e-9))
            )
        return Proposal(
            strategy=strategy,
            stand_in=instead,
            objective=float(np.exp(log_rate)),
            iteration_time_s=seconds,
            iteration_time_low_s=seconds / factor,
            iteration_time_high_s=seconds * factor,
            memory_gib=float(np.exp(calibration.memory.mean(columns)[0])),
            fit_probability=float(fits[0]),
            node_hours=float(self.cost.node_hours(lattice, np.exp(time))[0]),
            best_so_far=None if known.best is None else float(np.exp(known.best)),
            probability_better=better,
            expected_saving=expected_saving,
            num_layers=run.num_layers,
        )
