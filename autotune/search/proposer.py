"""Which layouts a campaign tries next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration, Observation
from autotune.calibration.calibration import Z
from autotune.calibration.observations import time_sample
from autotune.cost_model.columns import Columns
from autotune.errors import NothingToPropose
from autotune.schemas import Objective
from autotune.search.belief import Belief
from autotune.search.choice import choose
from autotune.search.cost import TrialCost
from autotune.search.layouts import POINT_DIMENSIONS, Floats, Integers, Layouts, log_work
from autotune.search.neighbourhood import NearbyLayout, Step
from autotune.search.outlook import DRAWS, Outlook, Rival
from autotune.search.suspects import suspected
from autotune.search.trial import SearchTrial, merged
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

HOPELESS = 0.02
"""Probability of fitting that no untried layout exceeds when a search ends in which nothing ran."""

FAILURES_TO_DESPAIR = 2
"""Trials that ran out of memory before that: no formula alone ends a search."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A strategy to try, and what is expected of its trial before it runs.

    Attributes:
        objective: at `iteration_time_s`.
        iteration_time_s: with the ends of the 80 % interval of what would be measured.
        memory_gib: median of the fullest rank's peak.
        fit_probability: that memory suffices, with the headroom left.
        node_hours: that the trial is expected to take if it runs to its end.
        best_so_far: the objective of the best measured layout when this one was chosen.
        probability_better: that this one turns out to be better, if it fits.
        expected_saving: share of a training's time that is won by measuring it, on average and with
            its chance to fit; None for what was chosen elsewhere. These three are None while
            nothing is measured.
    """

    strategy: Strategy
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


@dataclass(frozen=True, kw_only=True, eq=False)
class _Known:
    """What the trials come to.

    Attributes:
        trials: one for each strategy.
        closed: rows of the space's layouts: tried, running, or told about by others.
        measured: row -> logarithm of its measured objective, if it left the headroom.
        too_large: trials that ran out of memory, or left less than the headroom.
    """

    trials: tuple[SearchTrial, ...]
    closed: Integers
    measured: dict[int, float]
    too_large: int

    @property
    def best(self) -> float | None:
        return max(self.measured.values(), default=None)


class Proposer:
    """Proposes strategies from (seed, trials) alone; what it keeps between calls is only worked
    out once.

    Args:
        earlier: what trials of other campaigns on this machine and software showed.
        cost: of a trial.
        headroom_gib: memory that the fullest GPU is to have left. What has run and left less has
            been timed, and is no best; what is likely to leave less is shunned like what is likely
            not to fit.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        objective: Objective,
        seed: int,
        earlier: Sequence[Observation] = (),
        cost: TrialCost = TrialCost(),  # noqa: B008  (frozen, so shared safely)
        headroom_gib: float = 0.0,
    ) -> None:
        self._space = space
        self._seed = seed
        self._earlier = tuple(earlier)
        self._cost = cost
        self._headroom_gib = headroom_gib
        self._layouts = Layouts.of(space, objective=objective)
        self._columns = Columns.of(space.transformer, self._layouts.lattice)
        self._objective = objective
        self._calibrated = lru_cache(maxsize=2)(self._calibrate)
        self._believed = lru_cache(maxsize=2)(self._believe)
        self._log_work = lru_cache(maxsize=None)(self._log_work_of)

    def propose(
        self, trials: Sequence[SearchTrial], *, count: int, free_nodes: int
    ) -> list[Proposal]:
        """Return up to `count` strategies, none observed before nor told about by one that was, to
        start at once.

        Their nodes together are at most `free_nodes`; the list is empty when nothing worth trying
        is small enough now. The order of `trials` does not matter. Trials of strategies that the
        space lacks teach, too.

        Raises:
            NothingToPropose: every layout has been tried, or nothing fits.
        """
        seen = list(trials)
        proposed: list[Proposal] = []
        while len(proposed) < count:
            known = self._known(seen)
            open_rows = np.setdiff1d(np.arange(len(self._layouts)), known.closed)
            if not len(open_rows) and not proposed:
                raise NothingToPropose(f"all {len(self._layouts)} layouts of the space are known")
            small = self._layouts.lattice["num_nodes"][open_rows] <= free_nodes
            if not small.any():
                break
            proposal = self._next(known, open_rows, open_rows[small])
            proposed.append(proposal)
            seen.append(SearchTrial(strategy=proposal.strategy, state="running"))
            free_nodes -= proposal.strategy.num_nodes
        return proposed

    def expect(
        self,
        strategies: Sequence[Strategy],
        trials: Sequence[SearchTrial],
        *,
        confirmations: bool = False,
    ) -> list[Proposal]:
        """Return what is expected of a trial of each of these strategies, which were chosen
        elsewhere and need not be of the space.

        Args:
            confirmations: whether the trials measure at the strategies' own GAS alone.
        """
        if not strategies:
            return []
        lattice = Lattice.of(strategies, gpus_per_node=self._space.machine.gpus_per_node)
        best = self._known(trials).best
        with threadpool_limits(limits=1, user_api="blas"):
            return self._expected(
                self.calibration(trials), lattice, best=best, confirmations=confirmations
            )

    def outlook(
        self, trials: Sequence[SearchTrial], *, best: Strategy | None = None
    ) -> Outlook | None:
        """Return how sure it is that the best measured layout is the best of the space; None while
        nothing of the space is measured.

        Args:
            best: the layout to be judged instead of that; None is returned where it is not of the
                space or not measured.
        """
        known = self._known(trials)
        if not known.measured:
            return None
        row = max(known.measured, key=lambda each: known.measured[each])
        if best is not None:
            judged = self._layouts.row_of(best)
            if judged is None or judged not in known.measured:
                return None
            row = judged
        open_rows = np.setdiff1d(np.arange(len(self._layouts)), known.closed)
        with threadpool_limits(limits=1, user_api="blas"):
            return Outlook.of(
                self._belief(known, open_rows),
                best=row,
                measured=sorted(known.measured),
                seed=self._seed,
            )

    def neighbours(self, trials: Sequence[SearchTrial], best: Strategy) -> list[NearbyLayout]:
        """Return what lies one step away from a measured strategy, as it stands after these
        trials; nothing where no trial of it has succeeded."""
        each = merged(trials)
        own = next((t for t in each if t.strategy == best and t.state == "ok"), None)
        if own is None:
            return []
        steps = Step.all_of(self._space.lattice(), best, each)
        lattice, rates = self._drawn(trials, [best, *(step.strategy for step in steps)])
        fits = self.calibration(trials).fit_probability(
            Columns.of(self._space.transformer, lattice), headroom_gib=self._headroom_gib
        )
        return [
            NearbyLayout.of(
                step,
                leads=rates[:, place] - rates[:, 0],
                measured_lead=self._log_rate(step.trial) - self._log_rate(own)
                if step.trial is not None and step.trial.state == "ok"
                else None,
                fit_probability=self._fits(step.trial, otherwise=float(fits[place])),
            )
            for place, step in enumerate(steps, start=1)
        ]

    def _fits(self, trial: SearchTrial | None, *, otherwise: float) -> float:
        """Return the probability of fitting with the headroom, where a trial has not shown it."""
        if trial is None or (trial.state != "ok" and not trial.out_of_memory):
            return otherwise
        return float(trial.state == "ok" and self._keeps_headroom(trial))

    def rivals(
        self, trials: Sequence[SearchTrial], best: Strategy, others: Sequence[Strategy]
    ) -> list[Rival]:
        """Return how each of `others` stands against `best`, all of them measured, after these
        trials; whether the space has them makes no difference."""
        return Rival.all_of(self._drawn(trials, [best, *others])[1])

    def _drawn(
        self, trials: Sequence[SearchTrial], strategies: Sequence[Strategy]
    ) -> tuple[Lattice, Floats]:
        """Return the strategies, and logarithms of their rates as they may all be at once, shape
        (DRAWS, n)."""
        lattice = Lattice.of(strategies, gpus_per_node=self._space.machine.gpus_per_node)
        columns = Columns.of(self._space.transformer, lattice)
        work = np.array([self._log_work(strategy) for strategy in strategies])
        generator = np.random.default_rng([self._seed, len(strategies)])
        with threadpool_limits(limits=1, user_api="blas"):
            times = self.calibration(trials).time.draws(columns, count=DRAWS, generator=generator)
        return lattice, np.asarray(work - times)

    def calibration(self, trials: Sequence[SearchTrial]) -> Calibration:
        """Return the belief after these trials, running ones left out."""
        ended = [trial for trial in merged(trials) if trial.state != "running"]
        return self._calibrated(tuple(ended))

    def _next(self, known: _Known, open_rows: Integers, small: Integers) -> Proposal:
        """Return the best of the `small` rows; raises NothingToPropose where none of all open ones
        is likely to fit."""
        with threadpool_limits(limits=1, user_api="blas"):
            belief = self._belief(known, small)
            self._refuse_hopeless(known, belief, open_rows)
            worth = belief.score(best=known.best, failed=known.too_large > 0)
            node_hours = self._node_hours(belief)
            if known.best is not None:
                worth = worth - np.log(node_hours)
        suspects = suspected(self._layouts.lattice.take(belief.rows), known.trials)
        candidates = np.flatnonzero(suspects == suspects.min())
        chosen = candidates[
            choose(
                POINT_DIMENSIONS,
                self._layouts.numbers[belief.rows[candidates]],
                worth[candidates],
                told=self._told(known),
                seed=self._seed,
            )
        ]
        row = self._layouts.lattice.take(belief.rows[[chosen]])
        [proposal] = self._expected(belief.calibration, row, best=known.best)
        if known.best is None:
            return proposal
        saving = float(belief.expected_saving(best=known.best)[chosen])
        return replace(proposal, expected_saving=saving)

    def _belief(self, known: _Known, rows: Integers) -> Belief:
        return self._believed(known.trials, tuple(rows.tolist()))

    def _believe(self, trials: tuple[SearchTrial, ...], chosen: tuple[int, ...]) -> Belief:
        rows = np.array(chosen, dtype=np.int64)
        ended = tuple(trial for trial in trials if trial.state != "running")
        calibration = self._calibrated(ended)
        running = [trial.strategy for trial in trials if trial.state == "running"]
        if running:
            calibration = self._expecting(calibration, running)
        return Belief.of(
            calibration,
            self._columns,
            log_work=self._layouts.log_work,
            rows=rows,
            headroom_gib=self._headroom_gib,
        )

    def _calibrate(self, ended: tuple[SearchTrial, ...]) -> Calibration:
        observed = [trial.observation(self._space.transformer) for trial in ended]
        own = [observation for observation in observed if observation is not None]
        return Calibration.of(self._space.machine, [*self._earlier, *own])

    def _expecting(self, calibration: Calibration, running: Sequence[Strategy]) -> Calibration:
        """Return a calibration that has been told its own forecast of what runs.

        The means stay about as they are; the deviation shrinks near by: what a running trial will
        say is not known, but there is less to learn next to it (a kriging believer, Ginsbourger et
        al. 2010).
        """
        machine, transformer = self._space.machine, self._space.transformer
        lattice = Lattice.of(running, gpus_per_node=machine.gpus_per_node)
        seconds = np.exp(calibration.time.mean(Columns.of(transformer, lattice)))
        expected = [
            Observation(transformer=transformer, strategy=strategy, iteration_time_s=float(time))
            for strategy, time in zip(running, seconds, strict=True)
        ]
        sample = time_sample([*calibration.observations, *expected], machine)
        return replace(calibration, time=calibration.time.told(sample))

    def _known(self, trials: Sequence[SearchTrial]) -> _Known:
        each = merged(trials)
        closed: set[int] = set()
        measured: dict[int, float] = {}
        for trial in each:
            row = self._layouts.row_of(trial.strategy)
            if row is None:
                continue
            closed.add(row)
            if trial.state == "ok" and self._keeps_headroom(trial):
                rate = self._log_rate(trial)
                measured[row] = max(rate, measured.get(row, rate))
                closed.update(np.flatnonzero(self._layouts.told_by(row)).tolist())
            elif trial.state == "running":
                closed.update(np.flatnonzero(self._layouts.twins_of(row)).tolist())
        return _Known(
            trials=tuple(each),
            closed=np.array(sorted(closed), dtype=np.int64),
            measured=measured,
            too_large=sum(t.out_of_memory or not self._keeps_headroom(t) for t in each),
        )

    def _keeps_headroom(self, trial: SearchTrial) -> bool:
        """Return whether it left the headroom; True where its peak was not read, or none is asked
        for."""
        limit = self._space.machine.memory_gib - self._headroom_gib
        peak = trial.peak_memory_gib
        return trial.state != "ok" or not self._headroom_gib or peak is None or peak <= limit

    def _log_rate(self, trial: SearchTrial) -> float:
        """Return the logarithm of a measured objective, at the trial's own GAS; of energy, with the
        power that was predicted."""
        return self._log_work(trial.strategy) - float(np.log(trial.iteration_time_s or 1.0))

    def _log_work_of(self, strategy: Strategy) -> float:
        machine = self._space.machine
        lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
        work = log_work(lattice, self._space.transformer, machine, objective=self._objective)
        return float(work[0])

    def _refuse_hopeless(self, known: _Known, belief: Belief, open_rows: Integers) -> None:
        if known.best is not None or known.too_large < FAILURES_TO_DESPAIR:
            return
        if belief.fit_probability.max() < HOPELESS:
            tried, every = len(known.closed), len(self._layouts)
            headroom = self._headroom_gib
            left = f" and leave {headroom:g} GiB" if headroom else ""
            raise NothingToPropose(
                f"{tried} of the space's {every} layouts have been tried; the other "
                f"{len(open_rows)} are not likely to fit in memory{left}, judged by what did not"
            )

    def _told(self, known: _Known) -> list[tuple[list[int], float | str]]:
        """Return each layout of the space that ended with the logarithm of its rate, or its
        failure. DeepHyper wants floats: an integer counts as failed."""
        told: dict[int, float | str] = {}
        for trial in known.trials:
            row = self._layouts.row_of(trial.strategy)
            if row is None or trial.state in {"running", "refused"}:
                continue
            if row in known.measured:
                told[row] = known.measured[row]
            else:
                told[row] = "F_oom" if trial.out_of_memory else "F_failed"
        return [(self._layouts.numbers[row].tolist(), result) for row, result in told.items()]

    def _node_hours(self, belief: Belief) -> Floats:
        seconds = np.exp(belief.log_work[belief.rows] - belief.log_rate)
        return self._cost.node_hours(self._layouts.lattice.take(belief.rows), seconds)

    def _expected(
        self,
        calibration: Calibration,
        lattice: Lattice,
        *,
        best: float | None,
        confirmations: bool = False,
    ) -> list[Proposal]:
        """Return a proposal for each strategy of `lattice`.

        Args:
            best: logarithm of the best measured objective; None while nothing is measured.
        """
        columns = Columns.of(self._space.transformer, lattice)
        log_time, variance, measured_variance = calibration.time.predict(columns)
        log_rate = np.array([self._log_work(strategy) for strategy in lattice]) - log_time
        seconds, factor = np.exp(log_time), np.exp(Z * np.sqrt(measured_variance))
        memory = np.exp(calibration.memory.mean(columns))
        fits = calibration.fit_probability(columns, headroom_gib=self._headroom_gib)
        node_hours = self._cost.node_hours(lattice, seconds)
        if confirmations:
            confirmed = zip(lattice, seconds.tolist(), strict=True)
            cost = self._cost.confirmation_node_hours
            node_hours = np.array(
                [cost(each, iteration_time_s=time_s) for each, time_s in confirmed]
            )
        above = None if best is None else (log_rate - best) / np.maximum(np.sqrt(variance), 1e-9)
        return [
            Proposal(
                strategy=strategy,
                objective=float(np.exp(log_rate[row])),
                iteration_time_s=float(seconds[row]),
                iteration_time_low_s=float(seconds[row] / factor[row]),
                iteration_time_high_s=float(seconds[row] * factor[row]),
                memory_gib=float(memory[row]),
                fit_probability=float(fits[row]),
                node_hours=float(node_hours[row]),
                best_so_far=None if best is None else float(np.exp(best)),
                probability_better=None if above is None else float(ndtr(above[row])),
            )
            for row, strategy in enumerate(lattice)
        ]
