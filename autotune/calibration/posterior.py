"""Posterior of the constants and of the formulas' residual, which is correlated between similar
strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import Sample
from autotune.calibration.settings import OwnLevels
from autotune.calibration.settings import axes as own_axes
from autotune.cost_model.columns import Array, Columns
from search_spaces.dimensions import TABLE
from search_spaces.machine import NARROW_PEAKS

Factor = tuple[Array, bool]
"""A Cholesky factor as returned by SciPy."""

LENGTH = 2.5
"""Distance, in doublings, at which the correlation falls to 1/e."""

DOUBLINGS = {
    **{d.name: d.distance for d in TABLE if d.distance is not None and d.is_counted},
    "seq_length": 1.0,
    "world_size": 0.5,
    "zero_shard_gpus": 0.5,
}
"""Weight of one doubling of each dimension; accumulation and size matter less than how a model is
split."""

SWITCHES = {
    **{
        column: d.distance
        for d in TABLE
        if d.distance is not None and not d.is_counted
        for column in d.columns or (d.name,)
    },
    **dict.fromkeys(
        (
            "flash_1",
            "unfused_softmax",
            "fused_norm",
            *NARROW_PEAKS,
            "compiled_loss",
        ),
        2.0,
    ),
}
"""Distance between the two values of each switch, in doublings."""

KINDS = ("num_experts", "kv_rank", "mamba_layers", "window_layers")
"""Columns of layer kinds that only some models have."""

KIND_DISTANCE = 2.0
"""Distance between a model with one of KINDS and one without, in doublings."""


def coordinates(columns: Columns, own: Sequence[OwnLevels] = ()) -> Array:
    """Return the coordinates of strategies, shape (n, d), in doublings.

    Args:
        own: trainer-defined dimensions, which add axes.
    """
    size = columns["num_layers"] * columns["hidden_size"] ** 2
    axes = [
        *(weight * np.log2(columns[name]) for name, weight in DOUBLINGS.items()),
        *(distance * columns[name] for name, distance in SWITCHES.items()),
        *(KIND_DISTANCE * (columns[name] > 0) for name in KINDS),
        columns["zero_stage"],
        np.log2(size),
        *own_axes(columns, own),
    ]
    return np.stack([np.broadcast_to(axis, len(columns)) for axis in axes], axis=-1)


def shared(one: Array, other: Array) -> Array:
    """Return the correlation of residuals, shape (n, m): exponential in the distance, so that they
    may change abruptly between neighbours."""
    squares = np.sum(one**2, axis=1)[:, np.newaxis] + np.sum(other**2, axis=1)
    squared = np.maximum(squares - 2.0 * one @ other.T, 0.0)
    return np.asarray(np.exp(-np.sqrt(squared) / LENGTH))


TAIL = 4.0
"""Degrees of freedom of the priors (Student's t): a machine may differ much from others of its
kind, and trials that agree on it outweigh the prior."""

MOST_ITERATIONS = 10
LONGEST_STEP = 1.0
"""Maximum change of a constant in one iteration, in standard deviations."""
SETTLED = 0.02
"""Convergence threshold, in standard deviations."""


@dataclass(frozen=True)
class Scales:
    """Standard deviations of logarithms.

    Attributes:
        residual: of the formulas' error, correlated between similar strategies.
        noise: of a repeated measurement.
    """

    residual: float
    noise: float


@dataclass(frozen=True, eq=False)
class Likeness:
    """Coordinates of n strategies, shape (n, d), and their pairwise correlation, shape (n, n)."""

    places: Array
    shared: Array

    @classmethod
    def of(cls, columns: Columns, own: Sequence[OwnLevels] = ()) -> Likeness:
        places = coordinates(columns, own)
        return cls(places=places, shared=shared(places, places))


@dataclass(frozen=True, eq=False)
class Linear:
    """The formulas for n observed strategies, linearised near z.

    Attributes:
        z: shape (c,), see `Quantity`.
        value: logarithm of the quantity at z, shape (n,).
        slopes: its derivatives with respect to z, shape (n, c).
    """

    z: Array
    value: Array
    slopes: Array

    @classmethod
    def of(cls, quantity: Quantity, sample: Sample, z: Array) -> Linear:
        value, slopes = quantity.linearised(z, sample.columns, sample.labelled)
        return cls(z=z, value=value, slopes=slopes)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Maximum a posteriori constants, and a Gaussian process over the residual.

    With `f` linearised at the maximum, errors of the constants and the residual are inferred
    together (universal kriging; Rasmussen and Williams 2006, section 2.7, and 3.4 for labels).

    Attributes:
        linear: the formulas at the maximum.
        covariance: of z, shape (c, c).
        places: coordinates of the observations, shape (n, d), see `coordinates`.
        weights: shape (n,); their product with `shared` is the residual of a strategy.
        factor: Cholesky factor of the covariance of the observations around the formulas, shape (n,
            n).
        log_evidence: of the observations at these scales (Laplace).
    """

    quantity: Quantity
    scales: Scales
    linear: Linear
    covariance: Array
    places: Array
    weights: Array
    factor: Factor
    log_evidence: float

    @classmethod
    def of(
        cls,
        quantity: Quantity,
        sample: Sample,
        scales: Scales,
        *,
        likeness: Likeness,
        start: Linear | None = None,
    ) -> Posterior:
        """Maximise by Gauss-Newton steps, approximating the observations as normal before each.

        Args:
            likeness: of the observed strategies.
            start: initial point; z = 0 by default.
        """
        start = start or Linear.of(quantity, sample, np.zeros(quantity.unknowns))
        climb = _Climb(quantity, sample, scales, likeness, start)
        for _ in range(MOST_ITERATIONS):
            if climb.step() < SETTLED:
                break
        return cls(
            quantity=quantity,
            scales=scales,
            linear=climb.linear,
            covariance=np.asarray(np.linalg.inv(climb.curvature)),
            places=likeness.places,
            weights=climb.weights,
            factor=climb.factor,
            log_evidence=climb.log_evidence(),
        )

    @property
    def z(self) -> Array:
        return self.linear.z

    @cached_property
    def precision(self) -> Array:
        return _solved(self.factor, np.eye(len(self.weights)))

    def correlation(self, columns: Columns) -> Array:
        return shared(coordinates(columns, self.quantity.own), self.places)

    def mean(self, columns: Columns, labelled: Array, correlation: Array) -> Array:
        """Return the mean of the true logarithm, shape (n,).

        Args:
            correlation: result of `correlation`.
        """
        value = self.quantity.log_value(self.z, columns, labelled)
        return value + self.scales.residual**2 * (correlation @ self.weights)

    def predict(self, columns: Columns, labelled: Array, correlation: Array) -> tuple[Array, Array]:
        """Return the mean and variance of the true logarithm, without noise, shape (n,) each."""
        value, slopes = self.quantity.linearised(self.z, columns, labelled)
        common = self.scales.residual**2 * correlation
        known = common @ self.precision
        unknown = slopes - known @ self.linear.slopes
        variance = (
            self.scales.residual**2
            - np.sum(known * common, axis=1)
            + np.sum((unknown @ self.covariance) * unknown, axis=1)
        )
        return value + common @ self.weights, np.maximum(variance, 0.0)

    def joint(self, columns: Columns, labelled: Array) -> tuple[Array, Array]:
        """Return the mean, shape (n,), and covariance, shape (n, n), of the true logarithms."""
        value, slopes = self.quantity.linearised(self.z, columns, labelled)
        places = coordinates(columns, self.quantity.own)
        common = self.scales.residual**2 * shared(places, self.places)
        known = common @ self.precision
        unknown = slopes - known @ self.linear.slopes
        covariance = (
            self.scales.residual**2 * shared(places, places)
            - known @ common.T
            + unknown @ self.covariance @ unknown.T
        )
        return value + common @ self.weights, covariance

    def log_density(self, columns: Columns, labelled: Array, log_value: Array) -> float:
        """Return the logarithm of the joint density of measurements, shape (n,), noise included."""
        mean, covariance = self.joint(columns, labelled)
        measured = covariance + self.scales.noise**2 * np.eye(len(mean))
        factor = scipy.linalg.cho_factor(measured, lower=True, check_finite=False)
        off = log_value - mean
        spread = 2.0 * np.sum(np.log(np.diag(factor[0]))) + len(mean) * np.log(2.0 * np.pi)
        return -0.5 * float(off @ _solved(factor, off) + spread)


def _solved(factor: Factor, values: Array) -> Array:
    return np.asarray(scipy.linalg.cho_solve(factor, values, check_finite=False))


class _Climb:
    """State of the maximisation; the attributes are those of `Posterior`."""

    def __init__(
        self,
        quantity: Quantity,
        sample: Sample,
        scales: Scales,
        likeness: Likeness,
        start: Linear,
    ) -> None:
        self._quantity, self._sample, self._scales = quantity, sample, scales
        self._kernel = scales.residual**2 * likeness.shared
        self._residual = np.zeros(len(sample.columns))
        self.linear = start

    def step(self) -> float:
        """Take one step; return the largest change of a constant."""
        z, value, slopes = self.linear.z, self.linear.value, self.linear.slopes
        target, self._variance = self._sample.normal(value + self._residual, self._scales.noise)
        self.factor = scipy.linalg.cho_factor(
            self._kernel + np.diag(self._variance), lower=True, check_finite=False
        )
        pull = TAIL / (TAIL + z**2)
        solved = _solved(self.factor, slopes)
        self.curvature = slopes.T @ solved + np.diag(pull)
        slope = solved.T @ (target - value) - pull * z
        step = np.linalg.solve(self.curvature, slope)
        step *= min(1.0, LONGEST_STEP / max(float(np.max(np.abs(step))), 1e-12))
        self.linear = Linear.of(self._quantity, self._sample, z + step)
        self.weights = _solved(self.factor, target - self.linear.value)
        self._residual = self._kernel @ self.weights
        return float(np.max(np.abs(step)))

    def log_evidence(self) -> float:
        """Return the log evidence at these scales (Laplace; Rasmussen and Williams 2006, eq.
        3.32)."""
        # Determinant relative to that of the noise, which the likelihood already contains.
        spread = 2.0 * np.sum(np.log(np.diag(self.factor[0]))) - np.sum(np.log(self._variance))
        doubt = (
            self._residual @ self.weights
            + TAIL * np.sum(np.log1p(self.linear.z**2 / TAIL))
            + spread
            + np.linalg.slogdet(self.curvature)[1]
        )
        latent = self.linear.value + self._residual
        return self._sample.log_likelihood(latent, self._scales.noise) - 0.5 * float(doubt)
