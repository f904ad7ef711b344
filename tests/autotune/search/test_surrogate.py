"""The regressor that DeepHyper is given."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_regressor

from autotune.search.surrogate import WorthRegressor

POINTS = np.array([[1, 2], [3, 4]], dtype=np.int64)
WORTH = {point.tobytes(): worth for point, worth in zip(POINTS, (0.5, -2.0), strict=True)}


def test_it_is_a_regressor_that_scikit_learn_can_clone() -> None:
    subject = WorthRegressor(WORTH)
    assert is_regressor(subject)
    assert clone(subject).worth == WORTH


def test_what_is_worth_most_is_least_to_minimise_whatever_it_is_fitted_to() -> None:
    subject = WorthRegressor(WORTH).fit(POINTS, [7.0, 8.0])
    mean, deviation = subject.predict(POINTS.astype(float), return_std=True)
    assert mean.tolist() == [-0.5, 2.0]
    assert deviation.tolist() == [0.0, 0.0]


def test_a_point_that_is_no_candidate_is_an_error() -> None:
    with pytest.raises(KeyError):
        WorthRegressor(WORTH).predict(POINTS + 77)
