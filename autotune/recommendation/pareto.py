"""Pareto fronts of rate and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autotune.recommendation.ranking import Contender
from autotune.schemas.choices import ParetoCost
from autotune.schemas.recommendations import FrontPoint, ParetoFront


def _num_nodes(contender: Contender) -> float:
    return float(contender.strategy.num_nodes)


def _joules_per_token(contender: Contender) -> float | None:
    rate = contender.metrics.tokens_per_joule
    return None if rate is None else 1.0 / rate


COSTS: Mapping[ParetoCost, Callable[[Contender], float | None]] = {
    "num_nodes": _num_nodes,
    "joules_per_token": _joules_per_token,
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
        strategy=contender.shape,
        tokens_per_s=contender.metrics.tokens_per_s,
        joules_per_token=_joules_per_token(contender),
        energy_sampled=contender.metrics.energy_sampled,
        confirmed=contender.confirmed,
    )
