"""How much each dimension of a space affects the rate, and in which direction."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.explanation.rates import BelievedRates, Integers, interval, shapley_values
from search_spaces.dimensions import Scalar

ENOUGH = 500
"""Maximum number of strategies in the draws; larger spaces are subsampled evenly."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DimensionImpact:
    """Shapley values of one dimension over all strategies of a space.

    Attributes:
        impact: mean absolute contribution to the logarithm of the rate.
        low, high: bounds of its 80 % interval.
        share: share of the sum of all dimensions' impacts.
        values: values of the dimension, ascending.
        by_level: mean contribution of each of the `values`; negative if it slows training.
        level: shape (n,), index into `values` of each strategy.
        contribution: shape (n,), contribution to the logarithm of each strategy's rate; over all
            dimensions they add up to its difference from the mean of the space.
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
    """Return the impact of each dimension, greatest first; empty if all strategies are alike.

    Means are exact over the counted strategies; intervals are from draws at up to ENOUGH
    strategies.
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
    # Uncertainty increases the absolute value in every draw without indicating a direction.
    centred = np.maximum(drawn.T - drawn.mean(axis=1) + seen, 0.0)
    return interval(sizes, centred * (sizes / seen))
