"""Expected results of a trial before it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of
from autotune.search.cost import TrialCost
from autotune.search.evidence import Evidence, Known
from autotune.search.proposal import Proposal
from autotune.search.stand_ins import StandIns
from autotune.search.trial import SearchTrial
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class TrialExpectation:
    """Predicts trials with calibrated costs.

    Attributes:
        cost: of a trial.
        headroom_gib: memory to leave free on the fullest GPU.
        stand_ins: smaller runs that may replace layouts; None if all layouts run in full.
    """

    space: SearchSpace
    evidence: Evidence
    cost: TrialCost
    headroom_gib: float
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
        machine = self.space.machine
        lattice = Lattice.of([run.strategy], gpus_per_node=machine.gpus_per_node)
        columns = columns_of([run.run(self.space.transformer)], machine)
        time, left_open, variance = calibration.time.predict(columns)
        seconds, factor = float(np.exp(time[0])), float(np.exp(Z * np.sqrt(variance[0])))
        fits = calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
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
