"""How much each dimension of a space decides about the rate, and in which direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.explanation.interval import interval
from autotune.explanation.rates import BelievedRates
from autotune.explanation.shapley import Integers, shapley_values
from search_spaces.dimensions import Scalar

ENOUGH = 500
"""Strategies at which draws are looked at: of more, as many evenly spread ones."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DimensionImpact:
    """Shapley values of one dimension over all strategies of a space.

    Attributes:
        impact: mean of their absolute values: by how much, as a logarithm of the rate, the choice
            of this dimension moves a strategy from the mean of the space.
        low, high: ends of the 80 % interval of what the belief leaves open of it.
        share: of all dimensions' impacts together.
        values: of the dimension, in rising order.
        by_level: mean contribution of each of the `values`, negative where it slows.
        level: shape (n,), the number of each strategy's value among `values`.
        contribution: shape (n,), to the logarithm of each strategy's rate; over all dimensions they
            add up to its difference from the mean of the space.
    """

    dimension: str
    impact: float
    low: float
    high: float
    share: float
    values: tuple[Scalar, ...]
    by_level: tuple[float, ...]
    level: Integers
    contribution: Array


def impacts(rates: BelievedRates) -> list[DimensionImpact]:
    """Return the impact of each dimension, the greatest first; nothing where strategies differ in
    none.

    The means are over the strategies that are counted, exactly; intervals are from the draws, which
    are looked at in ENOUGH strategies.
    """
    if not rates.dimensions:
        return []
    contributions = shapley_values(rates.levels, rates.log_rate)
    sizes = np.abs(contributions).mean(axis=1)
    low, high = _intervals(rates, contributions, sizes)
    whole = max(float(sizes.sum()), 1e-300)
    found = []
    for place, name in enumerate(rates.dimensions):
        level, values = rates.levels[:, place], rates.values(name)
        counts = np.bincount(level, minlength=len(values))
        sums = np.bincount(level, weights=contributions[place], minlength=len(values))
        found.append(
            DimensionImpact(
                dimension=name,
                impact=float(sizes[place]),
                low=float(low[place]),
                high=float(high[place]),
                share=float(sizes[place]) / whole,
                values=values,
                by_level=tuple((sums / counts).tolist()),
                level=level,
                contribution=contributions[place],
            )
        )
    return sorted(found, key=lambda each: -each.impact)


def _intervals(rates: BelievedRates, contributions: Array, sizes: Array) -> tuple[Array, Array]:
    n = len(rates.lattice)
    at = np.unique(np.linspace(0, n - 1, min(n, ENOUGH)).astype(np.int64))
    drawn = np.abs(shapley_values(rates.levels, rates.draws, at=at)).mean(axis=1)
    seen = np.maximum(np.abs(contributions[:, at]).mean(axis=1), 1e-300)
    # What is not known makes a size larger in every draw, and says nothing of its direction.
    centred = np.maximum(drawn.T - drawn.mean(axis=1) + seen, 0.0)
    return interval(sizes, centred * (sizes / seen))
