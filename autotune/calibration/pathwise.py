"""Joint draws for thousands of strategies, whose full covariance would be too large."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.posterior import LENGTH, Posterior, coordinates
from autotune.calibration.settings import OwnLevels
from autotune.cost_model.columns import Array, Columns

FEATURES = 512
"""Number of random Fourier features: they approximate correlations to about 0.06."""

BLOCK = 8192
"""Strategies whose features are held at a time: some tens of megabytes."""


def mean_and_draws(
    mixture: Mixture, columns: Columns, *, count: int, generator: np.random.Generator
) -> tuple[Array, Array]:
    """Return the mean of the true logarithm, shape (n,), and joint draws, shape (count, n), in
    random order.

    The same distribution as `Mixture.predict` and `Mixture.draws`, in time linear in n instead of
    cubic. The prior process is drawn with random Fourier features (Rahimi and Recht 2007; the
    spectrum of the exponential kernel is Cauchy), and each draw is conditioned on the observations
    pathwise (Wilson et al. 2020).
    """
    members = mixture.members
    shares = generator.multinomial(count, [weight for weight, _ in members]).tolist()
    observed = members[0][1].places  # the same for all members, like `correlation`
    own = members[0][1].quantity.own
    axes = coordinates(columns.take(slice(0, 1)), own).shape[1]
    waves = _Waves.of(observed, axes, generator, own=own)
    drawn = [
        _Drawn.of(posterior, waves, share, generator)
        for share, (_, posterior) in zip(shares, members, strict=True)
    ]
    mean, draws = np.zeros(len(columns)), np.empty((len(columns), count))
    for start in range(0, len(columns), BLOCK):
        rows = slice(start, min(start + BLOCK, len(columns)))
        block = columns.take(rows)
        here, correlation = waves.at(block), members[0][1].correlation(block)
        parts = []
        for (weight, _), member in zip(members, drawn, strict=True):
            value, lines = member.at(block, here, correlation)
            mean[rows] += weight * value
            parts.append(lines)
        draws[rows] = np.concatenate(parts, axis=1)
    return mean, draws[:, generator.permutation(count)].T


@dataclass(frozen=True, eq=False)
class _Waves:
    """Random Fourier features of the correlation `shared`, in the space of `coordinates`.

    Attributes:
        frequencies: shape (d, FEATURES).
        phases: shape (FEATURES,).
        observed: the features of the observed strategies, shape (observed, FEATURES).
        own: trainer-defined dimensions, whose axes are among the d.
    """

    frequencies: Array
    phases: Array
    observed: Array
    own: tuple[OwnLevels, ...]

    @classmethod
    def of(
        cls,
        places: Array,
        axes: int,
        generator: np.random.Generator,
        *,
        own: tuple[OwnLevels, ...],
    ) -> _Waves:
        directions = generator.normal(size=(axes, FEATURES))
        frequencies = directions / (LENGTH * np.abs(generator.normal(size=FEATURES)))
        phases = generator.uniform(0.0, 2.0 * np.pi, FEATURES)
        observed = _waves(places.reshape(-1, axes), frequencies, phases)
        return cls(frequencies=frequencies, phases=phases, observed=observed, own=own)

    def at(self, columns: Columns) -> Array:
        return _waves(coordinates(columns, self.own), self.frequencies, self.phases)


def _waves(places: Array, frequencies: Array, phases: Array) -> Array:
    return np.asarray(np.sqrt(2.0 / FEATURES) * np.cos(places @ frequencies + phases))


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The random part of k draws of one posterior.

    Attributes:
        weights: of the features, shape (FEATURES, k).
        surprise: deviation of the observations from the prior draw, weighted, shape (observed, k).
        moved: deviation of z from its maximum, shape (c, k).
    """

    posterior: Posterior
    weights: Array
    surprise: Array
    moved: Array

    @classmethod
    def of(
        cls, posterior: Posterior, waves: _Waves, count: int, generator: np.random.Generator
    ) -> _Drawn:
        weights = posterior.scales.residual * generator.normal(size=(FEATURES, count))
        surprise = waves.observed @ weights + _noise(posterior, count, generator)
        root = np.linalg.cholesky(posterior.covariance)
        moved = root @ generator.normal(size=(len(posterior.z), count))
        return cls(posterior=posterior, weights=weights, surprise=surprise, moved=moved)

    def at(self, columns: Columns, waves: Array, correlation: Array) -> tuple[Array, Array]:
        """Return the mean, shape (n,), and the draws, shape (n, k)."""
        posterior = self.posterior
        value, slopes = posterior.quantity.linearised(posterior.z, columns, np.zeros(len(columns)))
        common = posterior.scales.residual**2 * correlation
        known = common @ posterior.precision
        value = value + common @ posterior.weights
        unknown = slopes - known @ posterior.linear.slopes
        wrong = waves @ self.weights - known @ self.surprise
        return value, value[:, np.newaxis] + unknown @ self.moved + wrong


def _noise(posterior: Posterior, count: int, generator: np.random.Generator) -> Array:
    lower = np.tril(posterior.factor[0])
    variance = np.sum(lower**2, axis=1) - posterior.scales.residual**2
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return np.asarray(deviation[:, np.newaxis] * generator.normal(size=(len(deviation), count)))
