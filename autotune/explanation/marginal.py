"""The rate along one dimension, all else being equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from autotune.cost_model.columns import Array
from autotune.dimension_words import dimension_name, percent, step_words, value_words
from autotune.explanation.rates import BelievedRates, Integers, group_sums, grouped, interval
from autotune.schemas.figures import MarginalValue
from search_spaces.dimensions import Scalar

HARDLY = 0.005
"""Minimum change of the rate that a sentence mentions."""

LINKED = 1e-12
"""Minimum weight at which the comparisons link two values."""


@dataclass(frozen=True, kw_only=True)
class MarginalStep:
    """The change from one value to the next, between strategies that differ in nothing else.

    Attributes:
        change: relative change of the rate; negative for a loss.
        low, high: bounds of its 80 % interval.
        clear: whether the interval excludes 0 and the change is large enough to mention.
        sentence: `PP 8 to 16 costs 6 % (4 to 8 %)`.
    """

    lower: Scalar
    upper: Scalar
    change: float
    low: float
    high: float
    clear: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Marginal:
    """The curve of one dimension. `sentence` describes its largest clear step, or, without one, the
    change from its lowest to its highest point."""

    dimension: str
    points: tuple[MarginalValue, ...]
    steps: tuple[MarginalStep, ...]
    sentence: str


def marginal(rates: BelievedRates, dimension: str) -> Marginal:
    """Return the curve of one of the rates' `dimensions`.

    Only strategies that agree in all other dimensions are compared (least squares with a fixed
    effect per combination of the others), so that values which are legal in different places do not
    bias the curve. Values that no comparison links are at their plain means, without a step between
    them.

    Raises:
        ValueError: all strategies have the same value.
    """
    place = rates.dimensions.index(dimension)
    level, values = rates.levels[:, place], rates.values(dimension)
    others, count = grouped(np.delete(rates.levels, place, axis=1))
    figures = np.column_stack([rates.log_rate, rates.draws])
    curves, linked = _all_else_equal(level, len(values), others, count, figures)
    counts = np.bincount(level, minlength=len(values))
    points = tuple(
        MarginalValue(
            value=value_words(dimension, value),
            strategies=int(counts[at]),
            **{name: 100.0 * change for name, change in _change(curves[at]).items()},
        )
        for at, value in enumerate(values)
    )
    steps = tuple(
        _step(dimension, values[at], values[at + 1], curves[at + 1] - curves[at])
        for at in range(len(values) - 1)
        if linked[at] == linked[at + 1]
    )
    ways = [
        _step(dimension, values[one], values[other], curves[other] - curves[one])
        for one, other in _widest(curves[:, 0], linked)
    ]
    sentence = _sentence(dimension, steps, ways)
    return Marginal(dimension=dimension, points=points, steps=steps, sentence=sentence)


def _widest(curve: Array, linked: Integers) -> list[tuple[int, int]]:
    """Return the levels of the lowest and the highest point of each linked set with more than one
    level, the lower level first."""
    sets = [np.flatnonzero(linked == number) for number in np.unique(linked)]
    ends = [(int(s[np.argmin(curve[s])]), int(s[np.argmax(curve[s])])) for s in sets if len(s) > 1]
    return [(min(pair), max(pair)) for pair in ends]


def _all_else_equal(
    level: Integers, levels: int, others: Integers, groups: int, figures: Array
) -> tuple[Array, Integers]:
    """Return the curve of each figure as differences from the mean, shape (levels, k), and the
    index of the linked set of each level, shape (levels,).

    Args:
        figures: shape (n, k).
    """
    cells, which = np.unique(others * levels + level, return_inverse=True)
    size = np.bincount(which).astype(np.float64)
    met = scipy.sparse.csr_array((size, (cells // levels, cells % levels)), shape=(groups, levels))
    of_group = np.maximum(np.asarray(met.sum(axis=1)).ravel(), 1.0)[:, np.newaxis]
    of_level = np.asarray(met.sum(axis=0)).ravel()
    shared = np.asarray((met.T @ (met / of_group)).toarray())
    sums = group_sums(level, figures, levels)
    target = sums - met.T @ (group_sums(others, figures, groups) / of_group)
    curves = np.linalg.pinv(np.diag(of_level) - shared, hermitian=True) @ target
    _, linked = scipy.sparse.csgraph.connected_components(shared > LINKED, directed=False)
    for number in np.unique(linked):
        same = linked == number
        weights = of_level[same] / of_level[same].sum()
        plain = sums[same].sum(axis=0) / of_level[same].sum() - figures.mean(axis=0)
        curves[same] += plain - weights @ curves[same]
    return np.asarray(curves), np.asarray(linked, dtype=np.int64)


def _change(curve: Array) -> dict[str, float]:
    """Return the relative change, and the bounds of its interval, from the mean and the draws."""
    low, high = interval(curve[:1], curve[1:, np.newaxis])
    ends = {"change": curve[0], "low": low[0], "high": high[0]}
    return {name: float(np.exp(end)) - 1.0 for name, end in ends.items()}


def _step(dimension: str, lower: Scalar, upper: Scalar, curve: Array) -> MarginalStep:
    change, low, high = _change(curve).values()
    clear = (low > 0.0 or high < 0.0) and abs(change) >= HARDLY
    words = step_words(dimension, lower, upper)
    if clear:
        ends = sorted(abs(end) for end in (low, high))
        between = f"{percent(ends[0]).removesuffix(' %')} to {percent(ends[1])}"
        told = f"{'gains' if change > 0.0 else 'costs'} {percent(change)} ({between})"
    else:
        told = "makes no clear difference"
    return MarginalStep(
        lower=lower,
        upper=upper,
        change=change,
        low=low,
        high=high,
        clear=clear,
        sentence=f"{words} {told}",
    )


def _sentence(dimension: str, steps: Sequence[MarginalStep], ways: Sequence[MarginalStep]) -> str:
    name = dimension_name(dimension)
    if not ways:
        return f"No strategies differ in {name} alone"
    telling = [step for step in steps if step.clear] or [way for way in ways if way.clear]
    if not telling:
        return f"{name} makes no clear difference"
    return max(telling, key=lambda each: abs(each.change)).sentence
