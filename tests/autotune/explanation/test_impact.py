"""Impacts of dimensions, judged by machines of which the truth is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import ArrayLike
from scipy.stats import kendalltau

from autotune.explanation.impact import DimensionImpact, impacts
from autotune.explanation.rates import BelievedRates
from search_spaces.dimensions import ACCUMULATION
from tests.autotune.explanation.scene import TABLE_V, known, true_log_rates, world
from tests.benchmarks.worlds.world import QUESTIONS

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


def test_only_strategies_that_probably_fit_are_counted_where_asked() -> None:
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
