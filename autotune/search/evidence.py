"""Observations from a campaign's trials and from earlier ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.observations import columns_of, time_sample
from autotune.calibration.projection import log_ratio
from autotune.cost_model.columns import Columns
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.search.campaign_belief import CampaignBelief, Projections
from autotune.search.layouts import LAYOUT_DIMENSIONS, Floats, Integers, Layouts, log_work
from autotune.search.stand_ins import Runs
from autotune.search.trial import SearchTrial, merged
from autotune.words.failures import cause_of
from search_spaces.dimensions import OF_EXPERTS
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

Trials = tuple[SearchTrial, ...]

REPEATS = 2
"""Identical failures needed before a shared property of their layouts is blamed."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Known:
    """Summary of the trials.

    Attributes:
        trials: one for each strategy and stand-in; `ended` are those that do not run.
        closed: layouts of the space that need no trial: tried, running, or covered by another.
        measured: layout -> logarithm of its objective, measured or projected, if it left the
            headroom.
        runs: layout -> the run behind `measured`.
        full_only: layouts whose stand-in was tried, or must not be.
        projections: comparisons of projections with measurements.
        too_large: number of trials that ran out of memory, left less than the headroom, or stand
            for a layout that is unlikely to fit.
    """

    trials: Trials
    ended: Trials
    closed: Integers
    measured: dict[int, float]
    runs: dict[int, int]
    full_only: frozenset[int]
    projections: Projections
    too_large: int

    @property
    def running(self) -> list[SearchTrial]:
        return [trial for trial in self.trials if trial.state == "running"]

    @property
    def best(self) -> float | None:
        return max(self.measured.values(), default=None)

    @property
    def best_layout(self) -> int:
        return max(self.measured, key=lambda layout: self.measured[layout])


class Evidence:
    """What trials say about a space. Nothing is kept between calls but cached results.

    Attributes:
        runs: runs of the space's `layouts`, with their `columns`.
        calibration, projections: see `CampaignBelief`.

    Args:
        belief: the campaign's belief.
        headroom_gib: memory to leave free; a layout that leaves less is never the best.
    """

    def __init__(
        self,
        space: SearchSpace,
        layouts: Layouts,
        runs: Runs,
        *,
        objective: Objective,
        belief: CampaignBelief,
        headroom_gib: float,
    ) -> None:
        self.layouts = layouts
        self.runs = runs
        self.columns = runs.columns
        self.space = space
        self.headroom_gib = headroom_gib
        self._objective = objective
        self.calibration = belief.calibration
        self.projections = belief.projections
        self._log_ratios = lru_cache(maxsize=2)(self._ratios)
        self._unfit_in_full = lru_cache(maxsize=2)(self._find_unfit_in_full)
        self._own_work = lru_cache(maxsize=None)(self._work_of)

    def known(self, trials: Sequence[SearchTrial]) -> Known:
        """Return the summary of trials, in any order."""
        each = tuple(merged(trials))
        ended = tuple(trial for trial in each if trial.state != "running")
        projections = self.projections(ended)
        unfit = self._unfit_in_full(ended)
        too_large = {trial for trial in each if trial in unfit or self.is_too_large(trial)}
        closed: set[int] = set()
        full_only: set[int] = set()
        measured: dict[int, float] = {}
        runs: dict[int, int] = {}
        # Those in full come last: what is measured replaces what is projected.
        for trial in sorted(each, key=lambda trial: trial.stands_for is None):
            narrow = trial.stands_for is not None
            row = None if narrow and projections.contradicted else self.layouts.row_of(trial.full)
            if row is None:
                continue
            # With fewer replicas more memory may be needed than in full, with fewer layers never.
            lacks_memory = trial in too_large and trial.num_layers is None
            if narrow and (lacks_memory or trial.state == "refused"):
                full_only.add(row)
                continue
            fits = trial.state == "ok" and trial not in too_large
            closed.update(self._closed_by(trial, row, fits=fits))
            if fits:
                run = int(self.runs.stand_in[row]) if narrow else row
                rate = self.log_rate(trial) - float(self._log_ratios(ended)[run])
                measured[row] = max(rate, measured[row]) if runs.get(row) == run else rate
                runs[row] = run
            elif trial.state != "running":
                measured.pop(row, None)
                runs.pop(row, None)
        return Known(
            trials=each,
            ended=ended,
            closed=np.array(sorted(closed), dtype=np.int64),
            measured=measured,
            runs=runs,
            full_only=frozenset(full_only),
            projections=projections,
            too_large=len(too_large),
        )

    def is_too_large(self, trial: SearchTrial) -> bool:
        """Return whether a trial ran out of memory, or left less than the headroom asked for."""
        limit = self.space.machine.memory_gib - self.headroom_gib
        peak = trial.peak_memory_gib
        left_less = bool(self.headroom_gib) and peak is not None and peak > limit
        return trial.out_of_memory or (trial.state == "ok" and left_less)

    def _find_unfit_in_full(self, ended: Trials) -> frozenset[SearchTrial]:
        timed = [trial for trial in ended if trial.num_layers is not None and trial.state == "ok"]
        if not timed:
            return frozenset()
        gpus = self.space.machine.gpus_per_node
        in_full = Lattice.of([trial.full for trial in timed], gpus_per_node=gpus)
        fits = self.calibration(ended).fit_probability(
            Columns.of(self.space.transformer, in_full), headroom_gib=self.headroom_gib
        )
        return frozenset(
            trial for trial, fit in zip(timed, fits, strict=True) if fit < LIKELY_TO_FIT
        )

    def _closed_by(self, trial: SearchTrial, row: int, *, fits: bool) -> list[int]:
        if fits:
            return [row, *np.flatnonzero(self.layouts.covered_by(row)).tolist()]
        if trial.state == "running":
            return [row, *np.flatnonzero(self.layouts.twins_of(row)).tolist()]
        return [row]

    def log_rate(self, trial: SearchTrial) -> float:
        """Return the logarithm of the objective of the trial's strategy at its own GAS, for the
        trial's time; energy uses the predicted power."""
        return self._own_work(trial.full) - float(np.log(trial.iteration_time_s or 1.0))

    def work_of(self, run: SearchTrial, known: Known) -> float:
        """Return the logarithm of the objective of the trial's strategy times the seconds of the
        trial."""
        work = self._own_work(run.full)
        if run.stands_for is None:
            return work
        transformer, machine = self.space.transformer, self.space.machine
        in_full = Lattice.of([run.full], gpus_per_node=machine.gpus_per_node)
        wide = Columns.of(transformer, in_full)
        narrow = columns_of([run.run(transformer)], machine)
        ratio = log_ratio(self.calibration(known.ended).time, narrow=narrow, wide=wide)
        return work - float(ratio[0]) - known.projections.error

    def _work_of(self, strategy: Strategy) -> float:
        machine = self.space.machine
        lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
        work = log_work(lattice, self.space.transformer, machine, objective=self._objective)
        return float(work[0])

    def expecting(self, known: Known) -> Calibration:
        """Return the calibration updated with its own forecasts of the running trials.

        The means hardly change; the deviation near them shrinks, because less is left to learn
        there (a kriging believer, Ginsbourger et al. 2010).
        """
        calibration, running = self.calibration(known.ended), known.running
        if not running:
            return calibration
        machine = self.space.machine
        runs = [trial.run(self.space.transformer) for trial in running]
        seconds = np.exp(calibration.time.mean(columns_of(runs, machine)))
        expected = [
            replace(run, iteration_time_s=float(time))
            for run, time in zip(runs, seconds, strict=True)
        ]
        sample = time_sample([*calibration.observations, *expected], machine)
        return replace(calibration, time=calibration.time.refitted(sample))

    def log_work(self, known: Known) -> Floats:
        """Return the logarithm of a layout's objective times the seconds of each run that may stand
        for it, shape (n + m,)."""
        return np.asarray(self.runs.log_work - self._log_ratios(known.ended))

    def _ratios(self, ended: Trials) -> Floats:
        ratios = np.zeros(len(self.runs))
        narrow = self.runs.narrow
        if len(narrow):
            ratios[narrow] = self.projections(ended).error + log_ratio(
                self.calibration(ended).time,
                narrow=self.columns.take(narrow),
                wide=self.columns.take(self.runs.layout[narrow]),
            )
        return ratios


def suspected(lattice: Lattice, trials: Sequence[SearchTrial]) -> Integers:
    """Return how many suspected values each strategy of `lattice` has, shape (n,).

    A value is suspected if all failures of one repeated cause have it, the space has other values,
    and no strategy with it has run.
    """
    counts = np.zeros(len(lattice), dtype=np.int64)
    for name, value in sorted(_suspects(lattice, trials), key=repr):
        counts += lattice[name] == value
    return counts


def _suspects(lattice: Lattice, trials: Sequence[SearchTrial]) -> set[tuple[str, Any]]:
    by_cause: Mapping[str, list[SearchTrial]] = defaultdict(list)
    for trial in trials:
        if trial.state == "failed" and not trial.out_of_memory and trial.cause:
            by_cause[cause_of(trial.cause)].append(trial)
    chosen = [
        name
        for name in (*LAYOUT_DIMENSIONS, *OF_EXPERTS, *lattice.settings)
        if len(np.unique(lattice[name])) > 1
    ]
    innocent = {
        (name, trial.strategy.value(name))
        for trial in trials
        if trial.state == "ok"
        for name in chosen
    }
    suspects: set[tuple[str, Any]] = set()
    for alike in by_cause.values():
        if len(alike) >= REPEATS:
            for name in chosen:
                values = {trial.strategy.value(name) for trial in alike}
                if len(values) == 1:
                    suspects.add((name, values.pop()))
    return suspects - innocent
