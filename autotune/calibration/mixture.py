"""Predictions that leave open how far formulas and measurements can be trusted on a machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.calibration.posterior import Posterior, Scales
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns

RESIDUALS = (0.03, 0.08, 0.16, 0.3)
NOISES = (0.01, 0.03, 0.08, 0.2)
"""Scales between which the observations choose."""

USUAL = Scales(residual=0.08, noise=0.03)
DOUBT = 0.8
"""Standard deviation of the logarithm of either scale, before anything is observed."""

EXPECTED = Scales(
    residual=USUAL.residual * float(np.exp(DOUBT**2)), noise=USUAL.noise * float(np.exp(DOUBT**2))
)
"""Root mean square of log-normal scales."""

LEAST_WEIGHT = 0.02
"""Scales with less probability are left out."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posteriors at several scales, each with its probability."""

    members: tuple[tuple[float, Posterior], ...]

    @classmethod
    def of(cls, quantity: Quantity, sample: Sample) -> Mixture:
        """Fit each of the scales from where the one before ended, and weigh it by its evidence.

        Where nothing is observed, the scales' root mean square stands for all.
        """
        if not len(sample.columns):
            return cls(members=((1.0, Posterior.of(quantity, sample, EXPECTED)),))
        posteriors: list[Posterior] = []
        start = None
        for noise in NOISES:
            for residual in RESIDUALS:
                scales = Scales(residual=residual, noise=noise)
                posteriors.append(Posterior.of(quantity, sample, scales, start=start))
                start = posteriors[-1].z
        return cls(members=_weighed(posteriors))

    @property
    def best(self) -> Posterior:
        return max(self.members, key=lambda member: member[0])[1]

    def predict(self, columns: Columns, *, labelled: bool = False) -> tuple[Array, Array, Array]:
        """Return the mean and variance of the true logarithm and variance of a measurement's, (n,)
        each."""
        side = np.full(len(columns), float(labelled))
        weights = np.array([weight for weight, _ in self.members])[:, np.newaxis]
        predictions = [posterior.predict(columns, side) for _, posterior in self.members]
        means, variances = (np.array(stacked) for stacked in zip(*predictions, strict=True))
        noise = np.array([[p.scales.noise**2] for _, p in self.members])
        mean = np.sum(weights * means, axis=0)
        variance = np.sum(weights * (variances + (means - mean) ** 2), axis=0)
        return mean, variance, variance + np.sum(weights * noise)


def _weighed(posteriors: list[Posterior]) -> tuple[tuple[float, Posterior], ...]:
    """Weigh posteriors by evidence and by how usual their scales are; leave improbable ones out."""
    residuals = np.log([p.scales.residual / USUAL.residual for p in posteriors]) / DOUBT
    noises = np.log([p.scales.noise / USUAL.noise for p in posteriors]) / DOUBT
    evidence = np.array([p.log_evidence for p in posteriors])
    log_weights = evidence - 0.5 * (residuals**2 + noises**2)
    weights = np.exp(log_weights - log_weights.max())
    weights = weights / weights.sum()
    kept = weights >= min(LEAST_WEIGHT, weights.max())
    whole = weights[kept].sum()
    return tuple(
        (float(weight / whole), posterior)
        for weight, posterior, keep in zip(weights, posteriors, kept, strict=True)
        if keep
    )
