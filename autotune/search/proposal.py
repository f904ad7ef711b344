"""A trial to start, with its expected results and cost, and trials that check projections from few
nodes or few layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of
from autotune.measurement.metrics import SECONDS_PER_HOUR, measured_iterations, probe_range
from autotune.schemas.choices import ChosenBy
from autotune.schemas.trials import Expectation
from autotune.search.evidence import Evidence, Known
from autotune.search.layouts import Floats, Layouts
from autotune.search.stand_ins import StandIns
from autotune.search.trial import SearchTrial
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A strategy to try, and the prediction for its trial.

    Attributes:
        running: its trial, once it is started: of the strategy, or of the smaller run in its place,
            whose time, memory, fit and node-hours these are.
        iteration_time_s: median of the time.
        memory_gib: median of the fullest rank's peak.
        expected: the rest of the prediction; the objective is of the strategy, and memory fits with
            the headroom free.
        expected_saving: share of a training's time saved on average by measuring it, including its
            chance of fitting; None before any measurement, and if it was chosen by another search
            or to check projections.
    """

    running: SearchTrial
    iteration_time_s: float
    memory_gib: float
    expected: Expectation
    expected_saving: float | None = None

    @property
    def strategy(self) -> Strategy:
        return self.running.full

    @property
    def run(self) -> Strategy:
        return self.running.strategy

    @property
    def stand_in(self) -> Strategy | None:
        return None if self.running.stands_for is None else self.run


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
        chosen_by: ChosenBy | None = None,
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
            running=run,
            iteration_time_s=seconds,
            memory_gib=float(calibration.needed_gib(columns)[0]),
            expected=Expectation(
                objective=float(np.exp(log_rate)),
                iteration_time_low_s=seconds / factor,
                iteration_time_high_s=seconds * factor,
                fit_probability=float(fits[0]),
                node_hours=float(self.cost.node_hours(lattice, np.exp(time))[0]),
                best_so_far=None if known.best is None else float(np.exp(known.best)),
                probability_better=better,
                chosen_by=chosen_by,
            ),
            expected_saving=expected_saving,
        )


@dataclass(frozen=True, kw_only=True)
class TrialCost:
    """Duration of a campaign's trials.

    Attributes:
        start_up_s: before a trial's first iteration: imports, communicators, weights.
        warmup_iterations: at the smallest GAS of the trial.
        measured_iterations: expected at each measured GAS; long iterations need fewer.
        time_limit_s: maximum duration.
    """

    start_up_s: float = 60.0
    warmup_iterations: int = 1
    measured_iterations: int = 3
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
        """Return the node-hours of one more measurement of a strategy, only at its own GAS."""
        lattice = Lattice.of([strategy], gpus_per_node=gpus_per_node)
        own_s = np.array([iteration_time_s])
        first_s, _ = self._probe_times_s(lattice, own_s)
        [busy_s] = self.warmup_iterations * first_s + self._measuring_s(own_s)
        return strategy.num_nodes * (self.start_up_s + float(busy_s)) / SECONDS_PER_HOUR

    def _measuring_s(self, iteration_time_s: Floats) -> Floats:
        count = measured_iterations(iteration_time_s, least=self.measured_iterations)
        return np.asarray(count * iteration_time_s)

    def _probe_times_s(self, lattice: Lattice, iteration_time_s: Floats) -> tuple[Floats, Floats]:
        stages, groups = lattice["pipeline_parallel"], lattice["virtual_stages"]
        bubble = (stages - 1) / groups
        slot_s = iteration_time_s / (lattice["gradient_accumulation_steps"] + bubble)
        first, last = probe_range(
            accumulation=lattice["gradient_accumulation_steps"],
            stages=stages,
            virtual_stages=groups,
        )
        return (first + bubble) * slot_s, (last + bubble) * slot_s


CHECK_AFTER = 3
"""Stand-ins that were timed when the best of their layouts is measured in full, unless some layout
has been measured both ways by then."""


@dataclass(frozen=True, kw_only=True)
class ProjectionCheck:
    """Runs to make so that some layout is measured both in full and by a stand-in.

    Attributes:
        pool_nodes: nodes that trials may use at the same time.
    """

    space: SearchSpace
    layouts: Layouts
    stand_ins: StandIns
    pool_nodes: int

    def runs(self, known: Known) -> Iterator[tuple[Strategy, Strategy | None]]:
        """Yield strategies with their stand-ins, the cheapest check first; nothing once a check is
        done or running.

        A layout measured in full runs by a stand-in, which is cheap; otherwise the best layout
        timed by a stand-in runs in full.
        """
        if known.projections.count:
            return
        full = self._in_full(known)
        if any(trial.state == "running" for trial in full):
            return
        narrow = {t.strategy: t.state for t in known.trials if t.stands_for is not None}
        for trial in full:
            instead = self.stand_ins.of(trial.strategy)
            if trial.state != "ok":
                continue
            if narrow.get(instead) == "running":
                return
            if instead not in narrow:
                yield trial.strategy, instead
        leader = self._leader(known, tried=[trial.strategy for trial in full])
        if leader is not None:
            yield leader, None

    def _in_full(self, known: Known) -> list[SearchTrial]:
        full = [trial for trial in known.trials if trial.stands_for is None]
        if not full:
            return []
        gpus = self.space.machine.gpus_per_node
        lattice = Lattice.of([trial.strategy for trial in full], gpus_per_node=gpus)
        possible = self.stand_ins.possible(self.space, lattice)
        return [trial for trial, can in zip(full, possible, strict=True) if can]

    def _leader(self, known: Known, *, tried: Sequence[Strategy]) -> Strategy | None:
        """Return the best layout timed by a stand-in that fits the pool; None while there are too
        few."""
        timed = [layout for layout, run in known.runs.items() if run != layout]
        if len(timed) < CHECK_AFTER:
            return None
        timed.sort(key=lambda layout: known.measured[layout], reverse=True)
        strategies = [self.layouts.lattice.strategy(layout) for layout in timed]
        return next(
            (s for s in strategies if s not in tried and s.num_nodes <= self.pool_nodes), None
        )
