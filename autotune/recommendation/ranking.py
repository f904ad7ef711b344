"""Strategies ranked by measured rate.

Trials are identified by number and figures by name, never by position: a published tuner
recommended a step of 23.6 s where 15.05 s had been measured, because it sorted by a column that had
moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from statistics import median
from typing import Any

from autotune.knobs.phase import repeated_noise
from autotune.measurement.metrics import AccumulationMeasurement
from autotune.measurement.objectives import keeps_headroom, risk_of_running_out
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective, ParetoCost, TrialState
from autotune.schemas.recommendations import FrontPoint, ParetoFront
from autotune.schemas.trials import CONCLUSIVE, Trial, TrialMetrics
from search_spaces.strategy import Strategy

REPEATABILITY = 0.01
"""Relative: the same trial run again differs by about this much, whatever its own spread, unless
the campaign has measured it (`repeated_noise`)."""

OUTSIDE = frozenset({"imported", "knob"})
"""Purposes of trials that are not compared with others."""

LEVEL = 0.02
"""Relative: a layout that lacks no more than this, and no more than the spread, may be recommended
for its free memory."""

NEGLIGIBLE_RISK = 0.01
"""Probability of running out of memory below which more free memory is worth nothing."""

FAILED_STATES = CONCLUSIVE - {TrialState.OK}
"""Failures that the strategy itself may have caused."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One strategy with all its successful trials.

    Attributes:
        failed_confirmation: whether a confirmation of it failed.
        keeps_headroom: whether its peaks left the memory that the campaign asks for.
        projection: its metrics if its trials ran on fewer nodes or with fewer layers; None if they
            ran in full.
        repeatability: relative uncertainty of its rate at least.
    """

    strategy: Strategy
    trials: tuple[Trial, ...]
    objective: Objective
    failed_confirmation: bool
    keeps_headroom: bool = True
    projection: TrialMetrics | None = None
    repeatability: float = REPEATABILITY

    @property
    def projected_from_nodes(self) -> int | None:
        return None if self.projection is None else self.trials[-1].strategy.num_nodes

    @property
    def projected_from_layers(self) -> int | None:
        return None if self.projection is None else self.trials[-1].num_layers

    @property
    def confirmed(self) -> bool:
        return any(trial.purpose == "confirmation" for trial in self.trials)

    @property
    def counted(self) -> list[TrialMetrics]:
        figures = [trial.metrics for trial in self.trials if trial.metrics is not None]
        return [figure for figure in figures if figure.measured] or figures

    @cached_property
    def metrics(self) -> TrialMetrics:
        """Return the median of the metrics that count, with the spread within and between them; or
        the projection, with the uncertainty of its 80 % interval."""
        if self.projection is not None:
            return self.projection
        counted = sorted(self.counted, key=lambda figure: figure.iteration_time_s)
        seconds = median(figure.iteration_time_s for figure in counted)
        between = (counted[-1].iteration_time_s - counted[0].iteration_time_s) / 2
        within = max(figure.iteration_time_spread_s for figure in counted)
        peaks = [f.peak_memory_gib for f in counted if f.peak_memory_gib is not None]
        slowest = counted[-1]
        faster = {
            name: None if (value := getattr(slowest, name)) is None else value * ratio
            for ratio in [slowest.iteration_time_s / seconds]
            for name in _RATES
        }
        times = {"iteration_time_s": seconds, "iteration_time_spread_s": max(between, within)}
        peak = {"peak_memory_gib": max(peaks, default=None)}
        sampled = [f.tokens_per_joule for f in counted if f.energy_sampled and f.tokens_per_joule]
        energy = {"tokens_per_joule": median(sampled), "energy_sampled": True} if sampled else {}
        return slowest.model_copy(update=faster | times | peak | energy)

    @property
    def rate(self) -> float:
        return float(getattr(self.metrics, self.objective))

    @property
    def joules_per_token(self) -> float | None:
        rate = self.metrics.tokens_per_joule
        return None if rate is None else 1.0 / rate

    @property
    def uncertainty(self) -> float:
        """Return the relative uncertainty of the rate: the spread of its trials, or its
        repeatability if that is larger; above 1 if iterations differ by more than their median."""
        relative = self.metrics.iteration_time_spread_s / self.metrics.iteration_time_s
        return max(relative, self.repeatability)

    def beats(self, other: Contender) -> bool:
        return self.rate * (1.0 - self.uncertainty) > other.rate * (1.0 + other.uncertainty)

    def leads_by(self, ratio: float, *, over: Contender) -> bool:
        """Return whether a ratio of the rates exceeds both uncertainties.

        Uncertain rates lie between `rate / (1 + u)` and `rate (1 + u)`, so that a large spread of
        the times makes a rate doubtful, and a tenfold one still tenfold.
        """
        return ratio > (1.0 + self.uncertainty) * (1.0 + over.uncertainty)


_RATES = (
    "tokens_per_s",
    "tokens_per_s_per_gpu",
    "tokens_per_node_hour",
    "tokens_per_joule",
    "model_tflops_per_gpu",
    "hardware_tflops_per_gpu",
    "mfu",
    "hfu",
)


def measured_accumulations(trials: Iterable[Trial]) -> list[AccumulationMeasurement]:
    """Return the timings of the successful trials of one layout, merged by GAS."""
    times: dict[int, list[float]] = {}
    for trial in sorted(trials, key=lambda trial: trial.number):
        for accumulation in trial.accumulations if trial.state is TrialState.OK else []:
            if accumulation.measured:
                seconds = accumulation.iteration_times_s or [accumulation.iteration_time_s]
                times.setdefault(accumulation.gradient_accumulation_steps, []).extend(seconds)
    return [
        AccumulationMeasurement(gradient_accumulation_steps=gas, iteration_times_s=tuple(seconds))
        for gas, seconds in sorted(times.items())
    ]


def improvements(campaign: Campaign, trials: Iterable[Trial]) -> list[tuple[Trial, float]]:
    """Return each trial that reached more than all before it, in the order given, with its
    objective. Failed trials, those without the headroom and those OUTSIDE do not count.

    Args:
        trials: all in full, or all on as few nodes: others are not comparable.
    """
    steps: list[tuple[Trial, float]] = []
    for trial in trials:
        figures = trial.metrics
        counts = trial.state is TrialState.OK and trial.purpose not in OUTSIDE
        if counts and figures and keeps_headroom(campaign, figures):
            reached = getattr(figures, campaign.request.objective)
            if reached is not None and (not steps or reached > steps[-1][1]):
                steps.append((trial, float(reached)))
    return steps


def contenders(campaign: Campaign, trials: Sequence[Trial]) -> list[Contender]:
    """Return a contender for each layout with a successful full trial, best first.

    Confirmed ones come first, those without the headroom after those with it, those that failed
    when measured again last. Of several strategies of one layout, which differ in GAS, the best
    counts.
    """
    by_strategy: dict[Strategy, list[Trial]] = {}
    own = [t for t in trials if t.stands_for_nodes is None and t.purpose not in OUTSIDE]
    noise_floor = repeated_noise(own)
    for trial in sorted(own, key=lambda trial: trial.number):
        by_strategy.setdefault(trial.strategy, []).append(trial)
    ranked: list[Contender] = []
    for strategy, same in by_strategy.items():
        ok = [t for t in same if t.state is TrialState.OK and t.metrics is not None]
        if ok:
            again = [t for t in same if t.purpose == "confirmation"]
            failed = any(t.state in FAILED_STATES for t in again)
            succeeded = any(t.purpose == "confirmation" for t in ok)
            contender = Contender(
                strategy=strategy,
                trials=tuple(ok),
                objective=campaign.request.objective,
                failed_confirmation=failed and not succeeded,
                keeps_headroom=all(keeps_headroom(campaign, t.metrics) for t in ok if t.metrics),
                repeatability=REPEATABILITY if noise_floor is None else noise_floor / 2.0,
            )
            ranked.append(contender)
    ranked.sort(key=place)
    by_layout: dict[tuple[Any, ...], Contender] = {}
    for contender in ranked:
        by_layout.setdefault(contender.strategy.layout_key(), contender)
    return list(by_layout.values())


def place(
    contender: Contender, *, confirming: bool = False
) -> tuple[bool, bool, bool, float, Strategy]:
    """Return the sort key of contenders, lowest first.

    Args:
        confirming: rank it as confirmed.
    """
    return (
        contender.failed_confirmation,
        not contender.keeps_headroom,
        not (contender.confirmed or confirming),
        -contender.rate,
        contender.strategy,
    )


def safest_first(campaign: Campaign, ranked: Sequence[Contender]) -> list[Contender]:
    """Return the contenders with the safest of those level with the first moved to the front."""
    if not ranked:
        return []
    first = ranked[0]

    def risk(contender: Contender) -> float:
        peak = contender.metrics.peak_memory_gib
        if peak is None:
            return 1.0
        return max(risk_of_running_out(peak, campaign.model, campaign.machine), NEGLIGIBLE_RISK)

    level = [
        other
        for other in ranked
        if place(other)[:3] == place(first)[:3]
        and (other.projection is None) is (first.projection is None)
        and not first.beats(other)
        and other.rate >= (1.0 - LEVEL) * first.rate
    ]
    safest = min(level, key=risk)
    return [safest, *(other for other in ranked if other is not safest)]


def level_runner_up(ranked: Sequence[Contender]) -> Contender | None:
    """Return the second layout if it was confirmed and the best, the first, does not beat it."""
    if len(ranked) < 2:
        return None
    best, second = ranked[:2]
    counts = second.confirmed and second.keeps_headroom and not second.failed_confirmation
    return second if counts and not best.beats(second) else None


def fastest_without_headroom(ranked: Sequence[Contender]) -> Contender | None:
    """Return the fastest layout that beats the best, the first, but leaves too little memory."""
    tight = [
        other
        for other in ranked[1:]
        if not other.keeps_headroom and not other.failed_confirmation and other.beats(ranked[0])
    ]
    return max(tight, key=lambda other: other.rate, default=None)


COSTS: Mapping[ParetoCost, Callable[[Contender], float | None]] = {
    "num_nodes": attrgetter("strategy.num_nodes"),
    "joules_per_token": attrgetter("joules_per_token"),
}


def pareto_fronts(ranked: Sequence[Contender]) -> list[ParetoFront]:
    """Return the fronts of tokens/s over nodes and over energy per token, in this order; the second
    only if the machine's power is known.

    A front has each layout that is faster than all that cost as much or less, cheapest first.
    Layouts that failed when measured again, leave too little memory, or are projected from few
    nodes are excluded.
    """
    measured = [c for c in ranked if c.projection is None]
    standing = [c for c in measured if c.keeps_headroom and not c.failed_confirmation]
    fronts = (
        ParetoFront(against=name, points=_front(standing, cost)) for name, cost in COSTS.items()
    )
    return [front for front in fronts if front.points]


def _front(
    contenders: Sequence[Contender], cost: Callable[[Contender], float | None]
) -> list[FrontPoint]:
    known = [(value, each) for each in contenders if (value := cost(each)) is not None]
    known.sort(key=lambda pair: (pair[0], -pair[1].metrics.tokens_per_s, pair[1].strategy))
    points: list[FrontPoint] = []
    for _, contender in known:
        if not points or contender.metrics.tokens_per_s > points[-1].tokens_per_s:
            points.append(_point(contender))
    return points


def _point(contender: Contender) -> FrontPoint:
    return FrontPoint(
        trial_numbers=[trial.number for trial in contender.trials],
        strategy=contender.strategy,
        tokens_per_s=contender.metrics.tokens_per_s,
        joules_per_token=contender.joules_per_token,
        energy_sampled=contender.metrics.energy_sampled,
        confirmed=contender.confirmed,
    )
