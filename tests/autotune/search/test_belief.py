"""What a trial is worth."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns
from autotune.search.belief import (
    HARDLY,
    LEAST_FIT,
    Belief,
    discount,
    log_expected_improvement,
)
from tests.autotune.search.scene import small_space


@pytest.mark.parametrize("mean", [-0.4, -0.05, 0.0, 0.2])
@pytest.mark.parametrize("deviation", [0.02, 0.1])
def test_expected_improvement_is_what_draws_give(mean: float, deviation: float) -> None:
    draws = np.random.default_rng(1).normal(mean, deviation, 4_000_000)
    expected = float(np.mean(np.maximum(draws, 0.0)))
    worth = log_expected_improvement(np.array([mean]), np.array([deviation]), 0.0)
    if expected > 1e-6:
        assert float(np.exp(worth[0])) == pytest.approx(expected, rel=0.02)
    else:
        assert worth[0] < -13.0


def test_far_below_the_best_it_still_falls_and_stays_finite() -> None:
    means = np.linspace(-5.0, 0.0, 400)
    worth = log_expected_improvement(means, np.full(400, 0.01), 0.0)
    assert np.isfinite(worth).all()
    assert (np.diff(worth) > 0.0).all()


def test_a_sure_layout_is_not_discounted_and_a_hopeless_one_never_ruled_out() -> None:
    sure, even, hardly, hopeless = discount(np.log([1.0, 0.5, HARDLY, LEAST_FIT]))
    assert sure == 0.0
    assert even == pytest.approx(0.5 * np.log(0.5))
    assert hopeless < hardly < even
    assert np.isfinite(hopeless)


def test_the_expected_saving_is_the_mean_over_what_a_trial_may_show() -> None:
    space = small_space(tensor_parallel=[1, 2], micro_batch_size=[1, 2])
    mean = np.array([-0.3, 0.0, 0.05, 0.4])
    deviation = np.array([0.1, 0.05, 0.3, 1e-6])
    belief = Belief(
        calibration=Calibration.of(space.machine),
        columns=(columns := Columns.of(space.transformer, space.lattice())),
        memory=columns,
        log_work=np.zeros(4),
        rows=np.arange(4),
        log_rate=1.0 + mean,
        deviation=deviation,
        fit_probability=np.array([1.0, 0.5, 0.9, 1.0]),
    )
    drawn = np.random.default_rng(3).normal(mean, deviation, size=(400_000, 4))
    saved = np.mean(np.maximum(1.0 - np.exp(-drawn), 0.0), axis=0) * belief.fit_probability
    np.testing.assert_allclose(belief.expected_saving(best=1.0), saved, rtol=0.02, atol=2e-5)
