"""What a trial is worth."""

from __future__ import annotations

import numpy as np
import pytest
from deephyper.skopt.acquisition import gaussian_ei
from sklearn.base import clone, is_regressor

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns
from autotune.search.belief import Belief
from autotune.search.choice import choose
from autotune.search.surrogate import CalibratedRegressor
from tests.autotune.search.scene import small_space


def belief_of(*, mean: list[float], deviation: list[float], fit_probability: list[float]) -> Belief:
    space = small_space(tensor_parallel=[1, 2], micro_batch_size=[1, 2])
    columns = Columns.of(space.transformer, space.lattice())
    return Belief(
        calibration=Calibration.of(space.machine),
        columns=columns,
        memory=columns,
        log_work=np.zeros(4),
        rows=np.arange(4),
        log_rate=np.array(mean),
        deviation=np.array(deviation),
        fit_probability=np.array(fit_probability),
    )


def test_only_what_is_likely_to_fit_or_worth_the_risk_is_tried() -> None:
    belief = belief_of(
        mean=[-1.0, 0.5, 0.5, 0.0],
        deviation=[0.01, 0.1, 0.1, 0.1],
        fit_probability=[0.9, 0.2, 0.02, 0.1],
    )
    slow_but_fits, promising, hopeless, even = belief.worth_trying(best=0.0)
    assert slow_but_fits
    assert promising
    assert not hopeless
    assert not even


def test_probability_of_improvement_stays_finite_far_below_best() -> None:
    belief = belief_of(
        mean=[-5.0, -4.0, -0.1, 0.3], deviation=[0.01] * 4, fit_probability=[1.0] * 4
    )
    likely = belief.log_probability_better(best=0.0)
    assert np.isfinite(likely).all()
    assert (np.diff(likely) > 0.0).all()


def test_the_expected_saving_is_the_mean_over_a_trials_outcomes() -> None:
    mean = np.array([-0.3, 0.0, 0.05, 0.4])
    deviation = np.array([0.1, 0.05, 0.3, 1e-6])
    belief = belief_of(
        mean=(1.0 + mean).tolist(),
        deviation=deviation.tolist(),
        fit_probability=[1.0, 0.5, 0.9, 1.0],
    )
    drawn = np.random.default_rng(3).normal(mean, deviation, size=(400_000, 4))
    saved = np.mean(np.maximum(1.0 - np.exp(-drawn), 0.0), axis=0) * belief.fit_probability
    np.testing.assert_allclose(belief.expected_saving(best=1.0), saved, rtol=0.02, atol=2e-5)


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


def test_expected_improvement_is_weighted_by_fit_and_node_hours() -> None:
    """Against the mean of what a trial of each may show."""
    subject = regressor().fit(POINTS[:2], [0.4, -BEST])
    improvement = gaussian_ei(POINTS.astype(float), subject, y_opt=-BEST, xi=0.0)
    drawn = np.random.default_rng(5).normal(BELIEF.log_rate, BELIEF.deviation, size=(400_000, 4))
    expected = np.maximum(drawn - BEST, 0.0).mean(axis=0)
    expected *= np.sqrt(BELIEF.fit_probability) / NODE_HOURS
    np.testing.assert_allclose(improvement, expected, rtol=0.02)


def test_deephyper_decides_by_mean_and_deviation() -> None:
    """The highest mean is not the highest expected improvement."""

    def choice(node_hours: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
        surrogate = CalibratedRegressor(BELIEF, POINTS, node_hours)
        return choose(("a", "b"), POINTS, surrogate, results=[((3, 3), BEST)], seed=0)

    assert choice(np.ones(4)) == 1
    assert choice(NODE_HOURS) == 1
    assert choice(np.array([1.0, 10.0, 1.0, 1.0])) == 0
    assert choice(np.array([10.0, 10.0, 1.0, 10.0])) == 2


def test_a_point_that_is_no_candidate_is_an_error() -> None:
    with pytest.raises(KeyError):
        regressor().fit(POINTS, [0.0]).predict(POINTS + 77)
