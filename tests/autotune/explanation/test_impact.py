"""Impacts of dimensions, judged by machines of which the truth is known."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy.stats import kendalltau

from autotune.cost_model.columns import Array
from autotune.explanation.impact import DimensionImpact, impacts
from autotune.explanation.rates import BelievedRates, Integers, shapley_values
from search_spaces.dimensions import ACCUMULATION
from tests.autotune.explanation.scene import TABLE_V, known, true_log_rates, world
from tests.autotune.explanation.world import QUESTIONS

FIXED_BATCH = "Llama 3 8B on 2 DGX H100"


def believed(name: str) -> BelievedRates:
    return BelievedRates.of(world(name).space, known(name))


def true_impacts(name: str, rates: BelievedRates) -> dict[str, DimensionImpact]:
    truth = true_log_rates(name, rates.lattice)
    exact = replace(rates, log_rate=truth, draws=truth[:, np.newaxis])
    return {each.dimension: each for each in impacts(exact)}


def tau(one: ArrayLike, other: ArrayLike) -> float:
    return float(kendalltau(np.asarray(one), np.asarray(other)).statistic)


def test_the_order_is_that_of_the_truth() -> None:
    """Of dimensions, on average over the machines, of which some have dimensions that matter
    equally; of values and of single strategies on each."""
    of_dimensions = []
    for name in QUESTIONS:
        rates = believed(name)
        found, true = impacts(rates), true_impacts(name, rates)
        assert [each.impact for each in found] == sorted((f.impact for f in found), reverse=True)
        sizes = [true[each.dimension].impact for each in found]
        of_dimensions.append(tau([each.impact for each in found], sizes))
        levels = [(each.by_level, true[each.dimension].by_level) for each in found]
        assert tau(*(np.concatenate(both) for both in zip(*levels, strict=True))) > 0.9
        points = [(each.contribution, true[each.dimension].contribution) for each in found]
        assert tau(*(np.concatenate(both) for both in zip(*points, strict=True))) > 0.9
    assert np.mean(of_dimensions) >= 0.9


@pytest.mark.parametrize("name", [TABLE_V, FIXED_BATCH])
def test_contributions_add_up_and_levels_are_their_means(name: str) -> None:
    rates = believed(name)
    found = impacts(rates)
    whole = np.sum([each.contribution for each in found], axis=0)
    assert whole == pytest.approx(rates.log_rate - rates.log_rate.mean(), abs=1e-9)
    assert sum(each.share for each in found) == pytest.approx(1.0)
    for each in found:
        assert each.low <= each.impact <= each.high
        assert each.impact == pytest.approx(np.abs(each.contribution).mean())
        for level, mean in enumerate(each.by_level):
            assert mean == pytest.approx(each.contribution[each.level == level].mean())
        assert set(each.values) <= set(world(name).space.dimensions[each.dimension])


def test_intervals_hold_the_truth() -> None:
    inside = []
    for name in QUESTIONS:
        rates = believed(name)
        true = true_impacts(name, rates)
        inside += [each.low <= true[each.dimension].impact <= each.high for each in impacts(rates)]
    assert np.mean(inside) >= 0.6


def test_the_accumulation_is_no_dimension_where_it_follows() -> None:
    assert ACCUMULATION in believed(TABLE_V).dimensions
    rates = believed(FIXED_BATCH)
    assert len(np.unique(rates.lattice[ACCUMULATION])) > 1
    assert ACCUMULATION not in rates.dimensions


def test_only_strategies_likely_to_fit_are_counted_on_request() -> None:
    space, calibration = world(TABLE_V).space, known(TABLE_V)
    every = BelievedRates.of(space, calibration)
    fitting = BelievedRates.of(space, calibration, least_fit_probability=0.5)
    assert len(every.lattice) == len(space.lattice())
    assert 0 < len(fitting.lattice) < len(every.lattice)
    nowhere = BelievedRates.of(space, calibration, least_fit_probability=1.1)
    assert len(nowhere.lattice) == len(every.lattice)


def test_nothing_where_strategies_differ_in_nothing() -> None:
    rates = believed(TABLE_V)
    alone = replace(rates, lattice=rates.lattice.take(np.array([3])), log_rate=rates.log_rate[3:4])
    assert impacts(alone) == []


@st.composite
def tables(draw: st.DrawFn) -> tuple[Integers, Array]:
    """Some of the points of a small grid, and a figure of each."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    points = np.array(list(product(*(range(size) for size in sizes))), dtype=np.int64)
    seed = draw(st.integers(0, 2**32 - 1))
    generator = np.random.default_rng(seed)
    count = draw(st.integers(1, min(len(points), 60)))
    rows = generator.choice(len(points), size=count, replace=False)
    figures = generator.normal(0.0, 10.0 ** generator.uniform(-3, 3), (count, 2))
    return points[rows], figures


def by_definition(levels: Integers, figures: Array) -> Array:
    """Shape (d, n): every mean taken over a list of rows, as the definition has it."""
    n, d = levels.shape
    values = np.zeros((d, n))
    for row in range(n):
        for dimension in range(d):
            others = [other for other in range(d) if other != dimension]
            for size in range(d):
                weight = factorial(size) * factorial(d - size - 1) / factorial(d)
                for coalition in combinations(others, size):
                    gain = _mean(levels, figures, row, (*coalition, dimension))
                    gain -= _mean(levels, figures, row, coalition)
                    values[dimension, row] += weight * gain
    return values


def _mean(levels: Integers, figures: Array, row: int, coalition: tuple[int, ...]) -> float:
    agreeing = [
        other
        for other in range(len(levels))
        if all(levels[other, dimension] == levels[row, dimension] for dimension in coalition)
    ]
    return float(np.mean([figures[other] for other in agreeing]))


@settings(deadline=None, max_examples=20)
@given(tables())
def test_equal_to_the_definition(table: tuple[Integers, Array]) -> None:
    levels, figures = table
    exact = np.stack([by_definition(levels, each) for each in figures.T], axis=-1)
    scale = float(np.abs(figures).max())
    both = shapley_values(levels, figures)
    assert both == pytest.approx(exact, rel=1e-9, abs=1e-9 * scale)
    alone = shapley_values(levels, figures[:, 0])
    assert alone == pytest.approx(exact[..., 0], rel=1e-9, abs=1e-9 * scale)
    rows = np.arange(0, len(levels), 2)
    assert shapley_values(levels, figures, at=rows) == pytest.approx(both[:, rows])


def test_an_idle_dimension_gets_nothing_and_equals_get_the_same() -> None:
    levels = np.array(list(product(range(3), range(3), range(2))), dtype=np.int64)
    figures = (levels[:, 0] + levels[:, 1]).astype(np.float64)
    one, other, idle = shapley_values(levels, figures)
    assert one == pytest.approx(levels[:, 0] - 1.0)
    assert other == pytest.approx(levels[:, 1] - 1.0)
    assert idle == pytest.approx(np.zeros(len(levels)), abs=1e-12)
