"""Mixture of posteriors over the scale of the formulas' error and of the measurement noise.

Most members use the formulas, each with its own scales of residual and noise. Others ignore the
formulas and interpolate between observations. The observations determine the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy

from autotune.calibration.posterior import Likeness, Linear, Posterior, Scales
from autotune.calibration.quantity import Quantity, UniformQuantity
from autotune.calibration.sample import USUAL_NOISE, Sample
from autotune.cost_model.columns import Array, Columns

RESIDUALS = (0.03, 0.08, 0.16, 0.3)
NOISES = (0.01, 0.03, 0.08, 0.2)
"""Grid of scales."""

USUAL = Scales(residual=0.08, noise=USUAL_NOISE)
DOUBT = 0.8
"""Prior standard deviation of the logarithm of either scale."""

EXPECTED = Scales(
    residual=USUAL.residual * float(np.exp(DOUBT**2)), noise=USUAL.noise * float(np.exp(DOUBT**2))
)
"""Root mean square of the log-normal scales."""

LEAST_WEIGHT = 0.02
"""Members with a lower probability are dropped."""

DISBELIEF = 0.002
"""Prior probability that the formulas say nothing about a machine. No published stack is like that,
and trials of another model must not suggest it; if predictions are shuffled, a few trials overcome
this prior."""

WITHOUT_FORMULAS = tuple(
    Scales(residual=residual, noise=noise)
    for residual in (0.15, 0.3, 0.6)
    for noise in (0.01, 0.05)
)
"""Scales of the members that ignore the formulas, wide enough for the differences between
strategies."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Posteriors with their probabilities; at least one of them uses the formulas."""

    members: tuple[tuple[float, Posterior], ...]

    @classmethod
    def of(cls, quantity: Quantity, sample: Sample) -> Mixture:
        """Fit a posterior for each pair of scales, warm-started from the previous one, and weight
        it by its evidence.

        Without observations, one posterior at the root mean square of the scales stands for all.
        """
        likeness = Likeness.of(sample.columns, quantity.own)
        if not len(sample.columns):
            nothing = Posterior.of(quantity, sample, EXPECTED, likeness=likeness)
            return cls(members=((1.0, nothing),))
        hypotheses = quantity.hypotheses
        grid = [
            Scales(residual=residual, noise=noise) for noise in NOISES for residual in RESIDUALS
        ]
        believing = [
            member
            for hypothesis in hypotheses
            for member in _fitted(hypothesis, sample, grid, likeness)
        ]
        uniform = UniformQuantity(
            machine=quantity.machine,
            prior=quantity.prior,
            of_memory=quantity.of_memory,
            own=quantity.own,
        )
        doubting = _fitted(uniform, sample, WITHOUT_FORMULAS, likeness)
        log_priors = np.concatenate(
            [
                np.tile(
                    np.log((1.0 - DISBELIEF) / len(hypotheses)) + _log_priors(grid), len(hypotheses)
                ),
                np.full(len(doubting), np.log(DISBELIEF / len(doubting))),
            ]
        )
        return cls(members=_weighed([*believing, *doubting], log_priors))

    def refitted(self, sample: Sample) -> Mixture:
        """Return the members refitted to `sample` with unchanged weights: for pending trials, whose
        results are only assumed."""
        likeness = Likeness.of(sample.columns, self.best.quantity.own)
        return Mixture(
            members=tuple(
                (
                    weight,
                    Posterior.of(
                        member.quantity,
                        sample,
                        member.scales,
                        likeness=likeness,
                        start=Linear.of(member.quantity, sample, member.z),
                    ),
                )
                for weight, member in self.members
            )
        )

    @property
    def best(self) -> Posterior:
        """The most probable member that uses the formulas."""
        return max(
            ((weight, member) for weight, member in self.members if _believes(member)),
            key=lambda member: member[0],
        )[1]

    def predict(
        self, columns: Columns, *, labelled: Array | float = 0.0
    ) -> tuple[Array, Array, Array]:
        """Return the mean and variance of the true logarithm, and the variance of a measured one,
        shape (n,) each.

        Args:
            labelled: of what, see `Quantity.log_value`; shape (n,), or one for all.
        """
        side = np.broadcast_to(np.asarray(labelled, dtype=np.float64), len(columns))
        correlation = self._correlation(columns)
        weights = np.array([weight for weight, _ in self.members])[:, np.newaxis]
        predictions = [
            posterior.predict(columns, side, correlation) for _, posterior in self.members
        ]
        means, variances = (np.array(stacked) for stacked in zip(*predictions, strict=True))
        noise = np.array([[p.scales.noise**2] for _, p in self.members])
        mean = np.sum(weights * means, axis=0)
        variance = np.sum(weights * (variances + (means - mean) ** 2), axis=0)
        return mean, variance, variance + np.sum(weights * noise)

    def log_density(self, columns: Columns, log_value: Array) -> float:
        """Return the logarithm of the joint density of measurements, shape (n,), that were not
        observed."""
        measured = np.zeros(len(columns))
        densities = [
            np.log(weight) + posterior.log_density(columns, measured, log_value)
            for weight, posterior in self.members
        ]
        return float(scipy.special.logsumexp(densities))

    def mean(self, columns: Columns, *, labelled: bool = False) -> Array:
        """Return the most probable member's mean of the true logarithm, shape (n,).

        It costs a hundredth of `predict`.
        """
        side, correlation = np.full(len(columns), float(labelled)), self._correlation(columns)
        _, member = max(self.members, key=lambda weighed: weighed[0])
        return member.mean(columns, side, correlation)

    def draws(
        self,
        columns: Columns,
        *,
        count: int,
        generator: np.random.Generator,
        labelled: bool = False,
    ) -> Array:
        """Return joint draws of the strategies' true logarithms, shape (count, n), in random
        order."""
        weights = [weight for weight, _ in self.members]
        shares = generator.multinomial(count, weights)
        side = np.full(len(columns), float(labelled))
        parts = []
        for share, (_, posterior) in zip(shares.tolist(), self.members, strict=True):
            if share:
                mean, covariance = posterior.joint(columns, side)
                values, vectors = np.linalg.eigh(covariance)
                root = vectors * np.sqrt(np.maximum(values, 0.0))
                parts.append(mean + generator.normal(size=(share, len(mean))) @ root.T)
        return generator.permutation(np.concatenate(parts))

    def _correlation(self, columns: Columns) -> Array:
        return self.members[0][1].correlation(columns)


def _believes(member: Posterior) -> bool:
    return not isinstance(member.quantity, UniformQuantity)


def _fitted(
    quantity: Quantity, sample: Sample, grid: Sequence[Scales], likeness: Likeness
) -> list[Posterior]:
    posteriors: list[Posterior] = []
    start: Linear | None = None
    for scales in grid:
        posteriors.append(Posterior.of(quantity, sample, scales, likeness=likeness, start=start))
        start = posteriors[-1].linear
    return posteriors


def _log_priors(grid: Sequence[Scales]) -> Array:
    residuals = np.log([scales.residual / USUAL.residual for scales in grid]) / DOUBT
    noises = np.log([scales.noise / USUAL.noise for scales in grid]) / DOUBT
    density = -0.5 * (residuals**2 + noises**2)
    return np.asarray(density - scipy.special.logsumexp(density))


def _weighed(
    posteriors: Sequence[Posterior], log_priors: Array
) -> tuple[tuple[float, Posterior], ...]:
    """Weight posteriors by evidence and prior, and drop improbable ones; at least one that uses the
    formulas stays."""
    evidence = np.array([posterior.log_evidence for posterior in posteriors])
    log_weights = evidence + log_priors
    weights = np.exp(log_weights - scipy.special.logsumexp(log_weights))
    believing = np.array([_believes(posterior) for posterior in posteriors])
    least = min(LEAST_WEIGHT, weights[believing].max())
    retained = (weights >= LEAST_WEIGHT) | (believing & (weights >= least))
    whole = weights[retained].sum()
    return tuple(
        (float(weight / whole), posterior)
        for weight, posterior, stays in zip(weights, posteriors, retained, strict=True)
        if stays
    )
