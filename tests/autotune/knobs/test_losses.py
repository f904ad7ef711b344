"""First losses within and beyond the class of a knob."""

from __future__ import annotations

import math

import pytest

from autotune.knobs.losses import compare_losses
from search_spaces.knob import Numerics

BASE = [10.5, 10.4, 10.2, 9.9, 9.5]


def moved(relative: float) -> list[float]:
    return [loss * (1.0 + relative * step) for step, loss in enumerate(BASE)]


@pytest.mark.parametrize(
    ("relative", "within"),
    [
        (0.0, ("identical", "reordered", "numerics")),
        (1e-6, ("reordered", "numerics")),
        (1e-3, ("numerics",)),
        (1e-2, ()),
    ],
)
def test_each_class_has_its_limit(relative: float, within: tuple[Numerics, ...]) -> None:
    classes: tuple[Numerics, ...] = ("identical", "reordered", "numerics")
    found = {each: compare_losses([BASE], moved(relative), numerics=each) for each in classes}
    assert tuple(each for each, c in found.items() if c is not None and c.within) == within


def test_the_largest_difference_and_its_step_are_named() -> None:
    comparison = compare_losses([BASE], [*BASE[:2], 10.2 * 1.01, *BASE[3:]], numerics="reordered")
    assert comparison is not None
    assert (comparison.step, round(comparison.largest, 6)) == (3, 0.01)


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_beyond_every_class(loss: float) -> None:
    comparison = compare_losses([BASE], [*BASE[:4], loss], numerics="numerics")
    assert comparison is not None
    assert (comparison.within, comparison.step) == (False, 5)


def test_a_baseline_that_differs_from_itself_widens_the_limit() -> None:
    assert not compare_losses([BASE], moved(2e-6), numerics="identical").within  # type: ignore[union-attr]
    comparison = compare_losses([BASE, moved(1e-6)], moved(2e-6), numerics="identical")
    assert comparison is not None
    assert comparison.within


def test_missing_losses_are_no_comparison() -> None:
    assert compare_losses([()], BASE, numerics="identical") is None
    assert compare_losses([BASE], (), numerics="identical") is None
