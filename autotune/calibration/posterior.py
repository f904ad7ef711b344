"""What observations say of the constants, and of what the formulas leave over.

What the formulas get wrong of one strategy they get wrong of those that are like it.
"""

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
"""A Cholesky factor as SciPy gives it."""

LENGTH = 2.5
"""Distance, in doublings, at which what two strategies share falls to 1/e."""

DOUBLINGS = {
    **{d.name: d.distance for d in TABLE if d.distance is not None and d.is_counted},
    "seq_length": 1.0,
    "world_size": 0.5,
    "zero_shard_gpus": 0.5,
}
"""Weight of one doubling of each; accumulation and size matter less than how a model is cut."""

SWITCHES = {
    **{
        column: d.distance
        for d in TABLE
        if d.distance is not None and not d.is_counted
        for column in d.columns or (d.name,)
    },
    **dict.fromkeys(
        (
            "operation_checkpointing",
            "flash_1",
            "unfused_softmax",
            "fused_norm",
            *NARROW_PEAKS,
            "compiled_loss",
        ),
        2.0,
    ),
}
"""Distance of the two values of each, in doublings."""

KINDS = ("num_experts", "kv_rank", "mamba_layers", "window_layers")
"""Columns of what some models' layers have and others have not."""

KIND_DISTANCE = 2.0
"""Of a model that has one of KINDS from one that has not, in doublings."""


def coordinates(columns: Columns, own: Sequence[OwnLevels] = ()) -> Array:
    """Return where strategies lie, shape (n, d): distances are in doublings.

    Args:
        own: dimensions of trainers' own that add axes.
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
    """Return the correlation of what is wrong, shape (n, m): exponential in the distance, so that
    it may change abruptly from one strategy to the next."""
    squares = np.sum(one**2, axis=1)[:, np.newaxis] + np.sum(other**2, axis=1)
    squared = np.maximum(squares - 2.0 * one @ other.T, 0.0)
    return np.asarray(np.exp(-np.sqrt(squared) / LENGTH))


TAIL = 4.0
"""Degrees of freedom of the priors (Student's t): a machine may be far from what is generally known
of its kind, and trials that agree on it are believed."""

MOST_ITERATIONS = 10
LONGEST_STEP = 1.0
"""Standard deviations that a constant moves in one iteration."""
SETTLED = 0.02
"""Standard deviations that no constant moves by any more."""


@dataclass(frozen=True)
class Scales:
    """Standard deviations, as logarithms.

    Attributes:
        residual: of what the formulas get wrong, alike for like strategies.
        noise: of a measurement that is repeated.
    """

    residual: float
    noise: float


@dataclass(frozen=True, eq=False)
class Likeness:
    """Where n strategies lie, shape (n, d), see `coordinates`, and what is shared by each two of
    them, shape (n, n)."""

    places: Array
    shared: Array

    @classmethod
    def of(cls, columns: Columns, own: Sequence[OwnLevels] = ()) -> Likeness:
        places = coordinates(columns, own)
        return cls(places=places, shared=shared(places, places))


@dataclass(frozen=True, eq=False)
class Linear:
    """What the formulas say of n observed strategies near z.

    Attributes:
        z: shape (c,), see `Quantity`.
        value: logarithm of the quantity at z, shape (n,).
        slopes: its derivatives by z, shape (n, c).
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
    """Maximum a posteriori of the constants, and a Gaussian process over what is left.

    With `f` linearised at the maximum, errors of constants and of the rest are known together
    (universal kriging; Rasmussen and Williams 2006, section 2.7, and 3.4 for labels).

    Attributes:
        linear: the formulas at the maximum.
        covariance: of z, shape (c, c).
        places: of the observations, shape (n, d), see `coordinates`.
        weights: shape (n,); times `shared` they are the residual of a strategy.
        factor: Cholesky factor of the covariance of the observations round the formulas, as SciPy
            gives it, shape (n, n).
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
        """Climb by Gauss-Newton steps, the observations made normal again before each.

        Args:
            likeness: of the observed strategies.
            start: where to begin; where z is 0 unless told.
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
        """The constants at the maximum, shape (c,), see `Quantity`."""
        return self.linear.z

    @cached_property
    def precision(self) -> Array:
        """Inverse covariance of the observations round the formulas, shape (n, n)."""
        return _solved(self.factor, np.eye(len(self.weights)))

    def correlation(self, columns: Columns) -> Array:
        """Return how alike strategies and the observed ones are, shape (n, observed)."""
        return shared(coordinates(columns, self.quantity.own), self.places)

    def mean(self, columns: Columns, labelled: Array, correlation: Array) -> Array:
        """Return the mean of the true logarithm alone, shape (n,).

        Args:
            correlation: as `correlation` gives it.
        """
        value = self.quantity.log_value(self.z, columns, labelled)
        return value + self.scales.residual**2 * (correlation @ self.weights)

    def predict(self, columns: Columns, labelled: Array, correlation: Array) -> tuple[Array, Array]:
        """Return the mean and variance of the true logarithm, noise apart, shape (n,) each."""
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


def _solved(factor: Factor, values: Array) -> Array:
    return np.asarray(scipy.linalg.cho_solve(factor, values, check_finite=False))


class _Climb:
    """On the way to the maximum; the attributes are those of `Posterior`."""

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
        """Return the farthest that a constant moved."""
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
        """Return the evidence of the observations at these scales (Laplace; Rasmussen and Williams
        2006, eq. 3.32)."""
        # Of the covariance over that of the noise alone, whose rest the likelihood has.
        spread = 2.0 * np.sum(np.log(np.diag(self.factor[0]))) - np.sum(np.log(self._variance))
        doubt = (
            self._residual @ self.weights
            + TAIL * np.sum(np.log1p(self.linear.z**2 / TAIL))
            + spread
            + np.linalg.slogdet(self.curvature)[1]
        )
        latent = self.linear.value + self._residual
        return self._sample.log_likelihood(latent, self._scales.noise) - 0.5 * float(doubt)
