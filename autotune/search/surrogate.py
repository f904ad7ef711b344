"""DeepHyper's surrogate: the calibration's forecast of each layout."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from autotune.search.belief import Belief
from autotune.search.layouts import Floats, Integers


class CalibratedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]  # untyped library
    """Predicts the objective that DeepHyper minimises, from the calibrated cost model.

    The calibration is fitted to the same trials, and to observations that DeepHyper cannot take:
    memory peaks, running trials, other campaigns' trials. `fit` therefore only stores the best
    value.

    A layout whose log rate is expected `lead` above the best measured one, with deviation `s`, is
    predicted at `best - w lead` with deviation `w s`. Its expected improvement (Jones et al. 1998,
    eq. 15) is then `w EI(lead, s)`: the improvement, weighted by the probability of fitting and the
    node-hours of a trial, see `Belief.weight`.

    Args:
        belief: of k candidates.
        points: shape (k, d), the distinct candidates as DeepHyper numbers them.
        node_hours: shape (k,), of a trial of each.
    """

    def __init__(self, belief: Belief, points: Integers, node_hours: Floats) -> None:
        self.belief = belief
        self.points = points
        self.node_hours = node_hours

    def __sklearn_clone__(self) -> Self:
        return type(self)(self.belief, self.points, self.node_hours)

    def fit(self, X: NDArray[Any], y: NDArray[Any] | list[float]) -> Self:  # noqa: ARG002
        self.best_ = float(np.min(y))
        return self

    def predict(self, X: NDArray[Any], return_std: bool = False) -> Floats | tuple[Floats, Floats]:
        """Return means, shape (k,), and standard deviations if requested.

        Raises:
            KeyError: a point of X is not a candidate.
        """
        row_of = {point.tobytes(): row for row, point in enumerate(self.points)}
        points = np.rint(np.asarray(X, dtype=np.float64)).astype(np.int64)
        rows = np.array([row_of[point.tobytes()] for point in points], dtype=np.int64)
        weight = self.belief.weight(self.node_hours)[rows]
        mean = self.best_ - weight * (self.belief.log_rate[rows] + self.best_)
        return (mean, weight * self.belief.deviation[rows]) if return_std else mean
