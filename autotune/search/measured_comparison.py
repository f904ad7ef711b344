"""Comparison of measured layouts with their neighbours and with each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration.observations import columns_of
from autotune.cost_model.columns import Columns
from autotune.search.evidence import Evidence, Known
from autotune.search.layouts import Floats
from autotune.search.neighbourhood import NearbyLayout, Step
from autotune.search.outlook import DRAWS, Rival
from autotune.search.trial import SearchTrial
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class MeasuredComparison:
    """Compares measured layouts by joint draws from the calibration.

    Attributes:
        seed: of the draws.
        headroom_gib: memory to leave free on the fullest GPU.
    """

    space: SearchSpace
    evidence: Evidence
    seed: int
    headroom_gib: float

    def neighbours(self, known: Known, best: Strategy) -> list[NearbyLayout]:
        """Return the layouts one step away from a measured strategy, compared with it; empty
        without a successful trial of it."""
        each = [trial for trial in known.trials if trial.stands_for is None]
        own = next((t for t in each if t.strategy == best and t.state == "ok"), None)
        if own is None:
            return []
        steps = Step.all_of(self.space.lattice(), best, each, settings=self.space.beyond_all)
        strategies = [best, *(step.strategy for step in steps)]
        rates = self._drawn(known, strategies)
        gpus = self.space.machine.gpus_per_node
        columns = Columns.of(self.space.transformer, Lattice.of(strategies, gpus_per_node=gpus))
        fits = self.evidence.calibration(known.ended).fit_probability(
            columns, headroom_gib=self.headroom_gib
        )
        log_rate = self.evidence.log_rate
        return [
            NearbyLayout.of(
                step,
                leads=rates[:, place] - rates[:, 0],
                fit_probability=self._fits(step.trial, otherwise=float(fits[place])),
                measured_lead=log_rate(step.trial) - log_rate(own)
                if step.trial is not None and step.trial.state == "ok"
                else None,
            )
            for place, step in enumerate(steps, start=1)
        ]

    def _fits(self, trial: SearchTrial | None, *, otherwise: float) -> float:
        """Return the probability of fitting with the headroom; 1 or 0 after a trial."""
        if trial is None or (trial.state != "ok" and not trial.out_of_memory):
            return otherwise
        return float(not self.evidence.is_too_large(trial))

    def rivals(self, known: Known, best: Strategy, others: Sequence[Strategy]) -> list[Rival]:
        """Compare each of `others` with `best`; all are measured or projected, inside the space or
        not."""
        return Rival.all_of(self._drawn(known, [best, *others]))

    def _drawn(self, known: Known, strategies: Sequence[Strategy]) -> Floats:
        """Return joint draws of the logarithms of the strategies' rates, shape (DRAWS, n).

        Strategies timed on few nodes are compared there: a change of width affects them alike.
        """
        narrow = {t.full: t for t in known.ended if t.stands_for and t.state == "ok"}
        runs = [
            narrow.get(each, SearchTrial(strategy=each, state="running")) for each in strategies
        ]
        transformer, machine = self.space.transformer, self.space.machine
        columns = columns_of([run.run(transformer) for run in runs], machine)
        work = [self.evidence.work_of(run, known) for run in runs]
        generator = np.random.default_rng([self.seed, len(strategies)])
        calibration = self.evidence.calibration(known.ended)
        with threadpool_limits(limits=1, user_api="blas"):
            times = calibration.time.draws(columns, count=DRAWS, generator=generator)
        return np.asarray(np.array(work) - times)
