"""The regressor that DeepHyper asks, and what DeepHyper makes of it."""

from __future__ import annotations

import numpy as np
import pytest
from deephyper.skopt.acquisition import gaussian_ei
from sklearn.base import clone, is_regressor

from autotune.search.choice import choose
from autotune.search.surrogate import CalibratedRegressor
from tests.autotune.search.test_belief import belief_of

BELIEF = belief_of(
    mean=[0.2, 0.3, -0.1, 0.1],
    deviation=[0.1, 0.02, 0.3, 0.05],
    fit_probability=[1.0, 0.25, 0.81, 1.0],
)
POINTS = np.array([[1, 1], [1, 2], [2, 1], [2, 2]], dtype=np.int64)
NODE_HOURS = np.array([2.0, 1.0, 1.0, 4.0])
BEST = 0.15


def regressor() -> CalibratedRegressor:
    return CalibratedRegressor(BELIEF, POINTS, NODE_HOURS)


def test_it_is_a_regressor_that_scikit_learn_can_clone() -> None:
    assert is_regressor(regressor())
    copy = clone(regressor())
    assert copy.belief is BELIEF
    assert copy.fit([[0, 0]], [-BEST]).best_ == -BEST


def test_deephypers_expected_improvement_is_weighted_by_fit_and_node_hours() -> None:
    """Against the mean of what a trial of each may show."""
    subject = regressor().fit(POINTS[:2], [0.4, -BEST])
    improvement = gaussian_ei(POINTS.astype(float), subject, y_opt=-BEST, xi=0.0)
    drawn = np.random.default_rng(5).normal(BELIEF.log_rate, BELIEF.deviation, size=(400_000, 4))
    expected = np.maximum(drawn - BEST, 0.0).mean(axis=0)
    expected *= np.sqrt(BELIEF.fit_probability) / NODE_HOURS
    np.testing.assert_allclose(improvement, expected, rtol=0.02)


def test_deephyper_decides_by_mean_and_deviation() -> None:
    """The highest mean is not the highest expected improvement."""

    def asked(node_hours: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
        surrogate = CalibratedRegressor(BELIEF, POINTS, node_hours)
        return choose(("a", "b"), POINTS, surrogate, told=[((3, 3), BEST)], seed=0)

    assert asked(np.ones(4)) == 1
    assert asked(NODE_HOURS) == 1
    assert asked(np.array([1.0, 10.0, 1.0, 1.0])) == 0
    assert asked(np.array([10.0, 10.0, 1.0, 10.0])) == 2


def test_a_point_that_is_no_candidate_is_an_error() -> None:
    with pytest.raises(KeyError):
        regressor().fit(POINTS, [0.0]).predict(POINTS + 77)
