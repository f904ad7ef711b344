"""Observed values of a quantity, each measured or known only to lie on one side of a limit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from autotune.calibration.quantity import ALLOCATED
from autotune.cost_model.columns import Array, Columns, Mask

TAIL = 4.0
"""Degrees of freedom of measurement errors (Student's t), so that outliers have little weight."""

EDGE = 0.12
"""Standard deviation of the logarithm of the memory limit of one run, if no peak was read: an
allocator wastes about a tenth, varying between runs."""

EDGE_OF_PEAKS = 0.04
"""The same if peaks were read: they include the waste, but an allocator frees some of it before it
fails."""

USUAL_NOISE = 0.03
"""Standard deviation of the logarithm of a repeated measurement, which weights refer to."""

LEAST_CURVATURE = 1e-4
"""Minimum curvature of the likelihood of a label."""

LONGEST_STEP = 0.5
"""Maximum change of a logarithm by one label in one iteration."""


@dataclass(frozen=True, eq=False)
class Sample:
    """n observations of one quantity.

    Attributes:
        log_value: shape (n,), logarithm of the measurement, or of the limit.
        side: shape (n,), 0 if `log_value` was measured, 1 if the quantity was below it, -1 if
            above.
        weight: shape (n,), or one for all, in (0, 1]. It divides the variance of a measurement, and
            multiplies the log likelihood of a label.
        allocated: shape (n,), whether a peak is of allocated memory and not of reserved; None: none
            is.
    """

    columns: Columns
    log_value: Array
    side: Array
    weight: Array | float = 1.0
    allocated: Mask | None = None

    @property
    def labelled(self) -> Array:
        """What each observation is of, see `Quantity.log_value`."""
        kind = np.abs(self.side)
        return kind if self.allocated is None else np.where(self.allocated, ALLOCATED, kind)

    @property
    def edge(self) -> float:
        return EDGE_OF_PEAKS if np.any(self.side == 0) else EDGE

    def _margin(self, noise: float) -> float:
        return float(np.hypot(self.edge, noise))

    def _variance(self, noise: float) -> Array | float:
        return noise**2 + USUAL_NOISE**2 * (1.0 / self.weight - 1.0)

    def log_likelihood(self, latent: Array, noise: float) -> float:
        """Return the log likelihood of all observations given the true logarithms `latent`, shape
        (n,)."""
        plain = self._variance(noise)
        error_squared = (self.log_value - latent) ** 2 / plain
        measured = -0.5 * ((TAIL + 1.0) * np.log1p(error_squared / TAIL) + np.log(plain))
        label = self.weight * scipy.special.log_ndtr(
            self.side * (self.log_value - latent) / self._margin(noise)
        )
        return float(np.sum(np.where(self.side == 0, measured, label)))

    def normal(self, latent: Array, noise: float) -> tuple[Array, Array]:
        """Return normal observations that are equivalent near `latent`: values and variances, shape
        (n,) each.

        A measurement keeps its value, with a variance that grows with its residual (an M-estimate).
        A label becomes a measurement whose likelihood has the same slope and curvature.
        """
        plain = self._variance(noise)
        error_squared = (self.log_value - latent) ** 2 / plain
        variance = plain * np.maximum((TAIL + error_squared) / (TAIL + 1.0), 1.0)
        width = self._margin(noise)
        margin = self.side * (self.log_value - latent) / width
        slope = np.exp(
            -0.5 * margin**2 - 0.5 * np.log(2.0 * np.pi) - scipy.special.log_ndtr(margin)
        )
        curvature = np.maximum(slope * (slope + margin) / width**2, LEAST_CURVATURE)
        step = np.clip(-self.side * slope / width / curvature, -LONGEST_STEP, LONGEST_STEP)
        measured = self.side == 0
        return (
            np.where(measured, self.log_value, latent + step),
            np.where(measured, variance, 1.0 / (self.weight * curvature)),
        )
