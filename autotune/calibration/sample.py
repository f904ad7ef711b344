"""What was observed of strategies: a figure, or only on which side of a limit it lay."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from autotune.cost_model.columns import Array, Columns

TAIL = 4.0
"""Degrees of freedom of the errors of measurements: a few trials are far off, and count little."""

EDGE = 0.12
"""Standard deviation, as a logarithm, of where the edge of memory lies for one run, as long as no
peak was read: what the allocator wastes is about a tenth, and never the same."""

EDGE_OF_PEAKS = 0.04
"""The same where peaks were read, which hold what the allocator wasted: what is left is that it
frees some of it, at a price, before it gives up."""

USUAL_NOISE = 0.03
"""Standard deviation, as a logarithm, of a measurement that is repeated: what weights refer to."""

LEAST_CURVATURE = 1e-4
"""Of the likelihood of a label that says next to nothing."""

LONGEST_STEP = 0.5
"""How far, as a logarithm, one label moves a value in one iteration."""


@dataclass(frozen=True, eq=False)
class Sample:
    """n observations of one quantity.

    Attributes:
        log_value: shape (n,), logarithm of what was measured, or of the limit.
        side: shape (n,), 0 where `log_value` was measured, 1 where the quantity was within it, -1
            where it was beyond.
        weight: shape (n,), or one for all, in (0, 1]: what each counts beside one of 1. It divides
            the variance of a usual measurement, and multiplies the log likelihood of a label.
    """

    columns: Columns
    log_value: Array
    side: Array
    weight: Array | float = 1.0

    @property
    def labelled(self) -> Array:
        return np.abs(self.side)

    @property
    def edge(self) -> float:
        """Standard deviation, as a logarithm, of where the edge of memory lies for one run."""
        return EDGE_OF_PEAKS if np.any(self.side == 0) else EDGE

    def _margin(self, noise: float) -> float:
        """Return the standard deviation of the margin at which one run does not fit: its own peak
        varies as measured ones do, and so does the edge."""
        return float(np.hypot(self.edge, noise))

    def _variance(self, noise: float) -> Array | float:
        """Return the variance of measurements, noise and what may have changed since."""
        return noise**2 + USUAL_NOISE**2 * (1.0 / self.weight - 1.0)

    def log_likelihood(self, latent: Array, noise: float) -> float:
        """Return the log likelihood of all observations, given the true logarithms `latent`, shape
        (n,)."""
        plain = self._variance(noise)
        error_squared = (self.log_value - latent) ** 2 / plain
        measured = -0.5 * ((TAIL + 1.0) * np.log1p(error_squared / TAIL) + np.log(plain))
        label = self.weight * scipy.special.log_ndtr(
            self.side * (self.log_value - latent) / self._margin(noise)
        )
        return float(np.sum(np.where(self.side == 0, measured, label)))

    def normal(self, latent: Array, noise: float) -> tuple[Array, Array]:
        """Return the normal observations that say the same near `latent`: values and variances,
        (n,) each.

        A measurement keeps its value, with a larger variance the further off it is (an M-estimate);
        a label becomes a measurement where its likelihood has the same slope and curvature.
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
