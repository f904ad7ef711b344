"""The Gaussian process and the regressor around it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_regressor

from autotune.search.gaussian_process import GaussianProcess
from autotune.search.layouts import Floats, Layouts
from autotune.search.surrogate import LayoutRegressor
from tests.autotune.search.scene import layouts_of, space_22b

NOTHING = np.zeros(0, dtype=np.int64)


def scene(count: int) -> tuple[Floats, Floats]:
    """Features on a grid of two dimensions, and a predicted value that varies over it."""
    generator = np.random.default_rng(0)
    features = generator.integers(0, 5, (count, 2)).astype(float)
    return features, features[:, 0] * 0.4 - features[:, 1] * 0.2


def test_a_right_cost_model_is_trusted_and_a_wrong_one_is_not() -> None:
    features, mean = scene(40)
    right = GaussianProcess.fit(features, mean, mean + 3.0)
    wrong = GaussianProcess.fit(features, mean, np.sin(3 * features[:, 1]) - mean)
    assert right.hyperparameters.trust == 1.0
    assert wrong.hyperparameters.trust == 0.0


def test_one_trial_moves_the_level_and_keeps_the_models_order() -> None:
    features, mean = scene(30)
    process = GaussianProcess.fit(features[:1], mean[:1], mean[:1] + 5.0)
    predicted, _ = process.predict(features, mean)
    assert predicted == pytest.approx(mean + 5.0, abs=1e-6)


def test_it_passes_near_its_data_and_is_unsure_away_from_them() -> None:
    features, mean = scene(25)
    y = mean + 0.3 * np.sin(features[:, 1])
    process = GaussianProcess.fit(features, mean, y)
    near, sure = process.predict(features, mean)
    _, unsure = process.predict(features + 40.0, mean)
    assert near == pytest.approx(y, abs=0.05)
    assert unsure.min() > 3 * sure.max()


def test_believing_keeps_the_mean_and_is_surer_there() -> None:
    features, mean = scene(20)
    process = GaussianProcess.fit(features[:10], mean[:10], mean[:10] + 1.0)
    believer = process.believing(features[10:])
    before, unsure = process.predict(features, mean)
    after, surer = believer.predict(features, mean)
    assert after == pytest.approx(before, abs=1e-9)
    assert (surer <= unsure + 1e-9).all()
    assert surer[10:].max() < unsure[10:].max()


def regressor(layouts: Layouts, **rows: list[int]) -> LayoutRegressor:
    chosen = {name: np.array(value, dtype=np.int64) for name, value in rows.items()}
    defaults = {"out_of_memory": NOTHING, "running": NOTHING} | chosen
    return LayoutRegressor(layouts=layouts, risk=np.zeros(len(layouts)), **defaults)


def test_it_is_a_regressor_that_scikit_learn_can_clone() -> None:
    layouts = layouts_of(space_22b())
    subject = regressor(layouts, running=[3])
    assert is_regressor(subject)
    copy = clone(subject)
    assert copy.layouts is layouts
    assert copy.running.tolist() == [3]


def test_values_put_in_place_of_out_of_memory_and_running_trials_are_not_learnt() -> None:
    layouts = layouts_of(space_22b())
    X = layouts.numbers[:6].astype(float)
    y = -layouts.log_rate[:6]
    lies = y.copy()
    lies[4:] = 1000.0
    subject = regressor(layouts, out_of_memory=[4], running=[5]).fit(X, lies)
    clean = regressor(layouts).fit(X[:4], y[:4])
    assert subject.predict(X) == pytest.approx(clean.predict(X))


def test_risk_raises_the_value_to_minimise() -> None:
    layouts = layouts_of(space_22b())
    X = layouts.numbers[:6].astype(float)
    risky = LayoutRegressor(
        layouts=layouts,
        risk=np.full(len(layouts), 0.5),
        out_of_memory=NOTHING,
        running=NOTHING,
    ).fit(X, -layouts.log_rate[:6])
    mean, deviation = risky.predict(X, return_std=True)
    assert mean == pytest.approx(-layouts.log_rate[:6] + 0.5, abs=1e-3)
    assert (deviation > 0).all()


def test_a_point_that_is_no_layout_is_an_error() -> None:
    layouts = layouts_of(space_22b())
    with pytest.raises(KeyError):
        regressor(layouts).fit(layouts.numbers[:1] + 77.0, [0.0])
