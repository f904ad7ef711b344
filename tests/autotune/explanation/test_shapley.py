"""Shapley values against the definition, coalition by coalition and strategy by strategy."""

from __future__ import annotations

from itertools import combinations, product
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model.columns import Array
from autotune.explanation.rates import Integers, shapley_values


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


@settings(deadline=None, max_examples=40)
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


@settings(deadline=None, max_examples=100)
@given(tables())
def test_they_add_up_to_the_difference_from_the_mean(table: tuple[Integers, Array]) -> None:
    levels, figures = table
    values = shapley_values(levels, figures)
    whole = values.sum(axis=0)
    scale = float(np.abs(figures).max())
    assert whole == pytest.approx(figures - figures.mean(axis=0), abs=1e-9 * scale)


def test_what_decides_nothing_gets_nothing_and_equals_get_the_same() -> None:
    levels = np.array(list(product(range(3), range(3), range(2))), dtype=np.int64)
    figures = (levels[:, 0] + levels[:, 1]).astype(np.float64)
    one, other, idle = shapley_values(levels, figures)
    assert one == pytest.approx(levels[:, 0] - 1.0)
    assert other == pytest.approx(levels[:, 1] - 1.0)
    assert idle == pytest.approx(np.zeros(len(levels)), abs=1e-12)
