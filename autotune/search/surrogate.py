"""The surrogate that DeepHyper is given: a scikit-learn regressor over a space's layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from autotune.search.gaussian_process import GaussianProcess
from autotune.search.layouts import Floats, Integers, Layouts


class LayoutRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped library
    """A Gaussian process with the cost model as its mean; `y` is what DeepHyper minimises.

    DeepHyper hands over points as numbers in the alphabetical order of their names; they are looked
    up among the layouts, so that features and predictions need not pass through it.

    Args:
        layouts: of the space.
        risk: shape (n,), by how much each layout's value is raised for its chance not to fit.
        out_of_memory: rows of `layouts` left out of the fit, though DeepHyper puts a value in
            their place: running out of memory tells nothing of speed, and fast layouts live next
            to those that do not fit.
        running: rows whose value is a lie; the fit keeps only that they are being measured.
    """

    def __init__(
        self, layouts: Layouts, risk: Floats, out_of_memory: Integers, running: Integers
    ) -> None:
        self.layouts = layouts
        self.risk = risk
        self.out_of_memory = out_of_memory
        self.running = running

    def fit(self, X: NDArray[Any], y: NDArray[Any] | list[float]) -> LayoutRegressor:
        """Fit to what DeepHyper was told: X of shape (n, d) and the values to minimise, (n,)."""
        rows = self._rows(X)
        telling = ~np.isin(rows, np.concatenate([self.out_of_memory, self.running]))
        rows, target = rows[telling], np.asarray(y, dtype=np.float64)[telling]
        features = self.layouts.features
        process = GaussianProcess.fit(features[rows], -self.layouts.log_rate[rows], target)
        self.process_ = process.believing(features[self.running])
        return self

    def predict(self, X: NDArray[Any], return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return values, shape (k,), and their standard deviations where wanted."""
        rows = self._rows(X)
        mean, deviation = self.process_.predict(
            self.layouts.features[rows], -self.layouts.log_rate[rows]
        )
        mean = mean + self.risk[rows]
        return (mean, deviation) if return_std else mean

    def _rows(self, X: NDArray[Any]) -> Integers:
        numbers = np.rint(np.asarray(X, dtype=np.float64)).astype(np.int64)
        return self.layouts.rows_of_numbers(numbers)
