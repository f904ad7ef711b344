"""A Gaussian process about the cost model's prediction, which it trusts as far as the data do.

    y(x) = offset + w m(x) + f(x) + noise,   f ~ GP(0, s^2 k)

`m` is the predicted value, `k` a Matérn 5/2 kernel over the layouts' features. `w` (how far the
prediction is trusted), the kernel's length scale and the share of noise are those with the greatest
marginal likelihood; `offset` and `s^2` are integrated out, under a normal and an inverse-gamma
prior, which makes the evidence a Student t (Rasmussen and Williams 2006, sections 2.7 and 5.4;
Gelman et al. 2013, section 14.8). A few dozen Cholesky factorisations in all, and no random start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from autotune.search.layouts import Floats

Factor = tuple[Floats, bool]
"""A Cholesky factor as SciPy gives it."""

TRUST = (0.0, 0.25, 0.5, 0.75, 1.0)
TRUST_SPREAD = 0.5
"""Prior of `w`: normal about 1, so that a single trial does not overturn the cost model."""

LENGTH_SCALES = (1.0, 2.0, 4.0, 8.0)
NOISE_SHARES = (0.001, 0.01, 0.1)
"""Variance of the noise over that of `f`: trials repeat within about 1 %."""

PRIOR_SPREAD = 0.3
PRIOR_WEIGHT = 3.0
"""Before any data `s` is about 0.3 (the cost model is 30 % off), worth three observations."""

OFFSET_VARIANCE = 10.0
"""Of `offset`, in units of `s^2`: the level of the data is theirs, not the model's."""


@dataclass(frozen=True, kw_only=True)
class Hyperparameters:
    """See the module's formula."""

    length_scale: float
    noise_share: float
    trust: float = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianProcess:
    """A fitted process; `features` (n, d), `alpha` (n,) and `factor` are of its n training rows."""

    hyperparameters: Hyperparameters
    level: float
    variance: float
    features: Floats
    factor: Factor
    alpha: Floats

    @classmethod
    def fit(cls, features: Floats, mean: Floats, y: Floats) -> GaussianProcess:
        """Fit to n >= 1 rows: features (n, d), predicted values `mean` and observed `y`, (n,)."""
        distances = cdist(features, features)
        fitted = [
            _fit(features, distances, mean, y, start=start)
            for start in (
                Hyperparameters(length_scale=length_scale, noise_share=noise_share)
                for length_scale, noise_share in product(LENGTH_SCALES, NOISE_SHARES)
            )
        ]
        return max(fitted, key=lambda candidate: candidate[0])[1]

    def believing(self, features: Floats) -> GaussianProcess:
        """Return the same process, told its own prediction at `features` (k, d).

        The mean stays as it is; the deviation shrinks near by: what a running trial will say is
        not known, but there is less to learn next to it (a kriging believer, Ginsbourger et al.
        2010).
        """
        known = np.concatenate([self.features, features])
        factor = _factor(cdist(known, known), self.hyperparameters)
        alpha = np.concatenate([self.alpha, np.zeros(len(features))])
        return replace(self, features=known, factor=factor, alpha=alpha)

    def predict(self, features: Floats, mean: Floats) -> tuple[Floats, Floats]:
        """Return the mean and standard deviation, each (k,), at features (k, d) with predicted
        `mean` (k,)."""
        length_scale = self.hyperparameters.length_scale
        cross = kernel(cdist(features, self.features), length_scale) + OFFSET_VARIANCE
        centre = self.level + self.hyperparameters.trust * mean + cross @ self.alpha
        explained = np.einsum("kn,nk->k", cross, cho_solve(self.factor, cross.T))
        remaining = np.maximum(1.0 + OFFSET_VARIANCE - explained, 1e-9)
        return centre, np.sqrt(self.variance * remaining)


def kernel(distances: Floats, length_scale: float) -> Floats:
    """Return the Matérn 5/2 kernel, one at distance zero."""
    scaled = np.sqrt(5.0) * distances / length_scale
    return np.asarray((1.0 + scaled + scaled**2 / 3.0) * np.exp(-scaled))


def _factor(distances: Floats, hyperparameters: Hyperparameters) -> Factor:
    covariance = kernel(distances, hyperparameters.length_scale) + OFFSET_VARIANCE
    covariance[np.diag_indices_from(covariance)] += hyperparameters.noise_share
    lower, is_lower = cho_factor(covariance, lower=True, check_finite=False)
    return lower, is_lower


def _fit(
    features: Floats, distances: Floats, mean: Floats, y: Floats, *, start: Hyperparameters
) -> tuple[float, GaussianProcess]:
    """Return the best trust at the length scale and noise of `start`: log evidence and process."""
    factor = _factor(distances, start)
    trust = np.array(TRUST)
    level = float(np.mean(y)) - trust * float(np.mean(mean))
    residuals = y[:, None] - level - trust * mean[:, None]
    solved = cho_solve(factor, residuals, check_finite=False)
    squares = PRIOR_WEIGHT * PRIOR_SPREAD**2 + np.sum(residuals * solved, axis=0)
    freedom = PRIOR_WEIGHT + len(y)
    log_determinant = 2.0 * np.sum(np.log(np.diag(factor[0])))
    evidence = -0.5 * (log_determinant + freedom * np.log(squares))
    evidence = evidence - 0.5 * ((trust - 1.0) / TRUST_SPREAD) ** 2
    best = int(np.argmax(evidence))
    process = GaussianProcess(
        hyperparameters=replace(start, trust=TRUST[best]),
        level=float(level[best]),
        variance=float(squares[best] / freedom),
        features=features,
        factor=factor,
        alpha=solved[:, best],
    )
    return float(evidence[best]), process
