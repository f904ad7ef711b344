"""The surrogate that DeepHyper is given: the worth of a trial of each layout, as the calibration
has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from autotune.search.layouts import Floats


class WorthRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped library
    """What DeepHyper is to minimise: the negative worth of a trial.

    The calibration has been fitted to the very trials that DeepHyper is told, with the memory that
    they needed, to those still running and to other campaigns', which DeepHyper cannot be told; so
    nothing is left to fit here, and the deviation, which is part of the worth, is 0.

    Args:
        worth: point, as the bytes of its whole numbers in the order of the names, -> its worth.
    """

    def __init__(self, worth: Mapping[bytes, float]) -> None:
        self.worth = worth

    def fit(self, X: NDArray[Any], y: NDArray[Any] | list[float]) -> WorthRegressor:  # noqa: ARG002
        """Fit nothing; X of shape (n, d)."""
        return self

    def predict(self, X: NDArray[Any], return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return values, shape (k,), and deviations where wanted."""
        numbers = np.rint(np.asarray(X, dtype=np.float64)).astype(np.int64)
        values = np.array([-self.worth[point.tobytes()] for point in numbers])
        return (values, np.zeros(len(values))) if return_std else values
