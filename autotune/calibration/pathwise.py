"""Draws of thousands of strategies at once, whose covariance would have too many entries."""

from __future__ import annotations

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.posterior import LENGTH, Posterior, coordinates
from autotune.cost_model.columns import Array, Columns

FEATURES = 512
"""Random waves that stand for the Gaussian process: its correlations come out within about 0.06."""


def mean_and_draws(
    mixture: Mixture, columns: Columns, *, count: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Return the mean of the true logarithm, shape (n,), and true logarithms as they may all be at
    once, shape (count, n), in random order.

    As `Mixture.predict` and `Mixture.draws`, the work of the draws growing with n and not with its
    cube: the process before its observations is drawn as a sum of random waves (Rahimi and Recht
    2007; the spectrum of the exponential kernel is Cauchy's), and each draw is then moved by what
    the observations say against it (Wilson et al. 2020, pathwise conditioning).
    """
    members = mixture.members
    shares = generator.multinomial(count, [weight for weight, _ in members])
    observed = members[0][1].places  # the same for all members, as `correlation` is
    here, there = _waves(coordinates(columns), observed, generator)
    correlation = members[0][1].correlation(columns)
    mean, parts = np.zeros(len(columns)), []
    for share, (weight, posterior) in zip(shares.tolist(), members, strict=True):
        value, slopes = posterior.quantity.linearised(posterior.z, columns, np.zeros(len(columns)))
        common = posterior.scales.residual**2 * correlation
        value = value + common @ posterior.weights
        mean += weight * value
        if share:
            known = common @ posterior.precision
            weights = posterior.scales.residual * generator.normal(size=(FEATURES, share))
            wrong = here @ weights - known @ (there @ weights + _noise(posterior, share, generator))
            unknown = slopes - known @ posterior.linear.slopes
            moved = np.linalg.cholesky(posterior.covariance) @ generator.normal(
                size=(len(posterior.z), share)
            )
            parts.append((value[:, np.newaxis] + unknown @ moved + wrong).T)
    return mean, generator.permutation(np.concatenate(parts))


def _waves(places: Array, observed: Array, generator: np.random.Generator) -> tuple[Array, Array]:
    """Return FEATURES waves at the strategies' places and at the observed ones', shapes (n,
    FEATURES) and (observed, FEATURES)."""
    axes = places.shape[1]
    directions = generator.normal(size=(axes, FEATURES))
    frequencies = directions / (LENGTH * np.abs(generator.normal(size=FEATURES)))
    phases = generator.uniform(0.0, 2.0 * np.pi, FEATURES)
    height = np.sqrt(2.0 / FEATURES)
    origin = places.mean(axis=0)
    here, there = (
        height * np.cos((each.reshape(-1, axes) - origin) @ frequencies + phases)
        for each in (places, observed)
    )
    return here, there


def _noise(posterior: Posterior, count: int, generator: np.random.Generator) -> Array:
    """Return errors of the observations as they were weighed, shape (observed, count)."""
    lower = np.tril(posterior.factor[0])
    variance = np.sum(lower**2, axis=1) - posterior.scales.residual**2
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return np.asarray(deviation[:, np.newaxis] * generator.normal(size=(len(deviation), count)))
