"""What is believed of candidates: the calibration's forecast, turned into what a trial of each is
worth."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns, Rows

WEIGHT_OF_FITTING = 0.5
"""Of the log probability of fitting beside the log expected improvement. Whole, the edge of memory,
where the fastest layouts live, is shunned; without it every second trial fails."""

HARDLY = 0.1
WEIGHT_OF_HARDLY_FITTING = 2.0
"""The same of what the probability lies below HARDLY: there a long row of failures is likelier than
a find, however much each promises."""

WEIGHT_AT_FIRST = 0.3
"""The same before anything has run or failed: then the rate decides, but for what hardly fits."""

LEAST_FIT = 1e-6
"""Probability of fitting below which all layouts are alike: none is ruled out for good."""

MANY = 2000
"""Candidates whose deviation is worked out; of more, the most promising half of this number and as
many evenly spread over the others, by their mean alone."""

ROUGH_SPREAD = 0.25
"""Standard deviation, as a logarithm, of memory where only its mean is worked out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Forecasts of the `rows` of n candidates; arrays have shape (k,).

    Attributes:
        calibration: fitted to all that was observed.
        columns: of all n candidates; `memory` those of what has to fit for each to be worth its
            trial, itself as a rule.
        log_work: shape (n,), logarithm of the objective times the seconds of an iteration.
        rows: those candidates that may be chosen and are worth a closer look.
        log_rate, deviation: mean and standard deviation of the logarithm of the objective.
        fit_probability: that memory suffices, with the headroom left.
        headroom_gib: memory that is to be left.
    """

    calibration: Calibration
    columns: Columns
    memory: Columns
    log_work: Array
    rows: Rows
    log_rate: Array
    deviation: Array
    fit_probability: Array
    headroom_gib: float = 0.0

    @classmethod
    def of(
        cls,
        calibration: Calibration,
        columns: Columns,
        *,
        log_work: Array,
        rows: Rows,
        memory: Columns | None = None,
        headroom_gib: float = 0.0,
    ) -> Belief:
        """Look closer at those of `rows`, shape (m,), that promise most, and at some others."""
        log_limit = calibration.log_limit(headroom_gib)
        memory = columns if memory is None else memory
        rows = worth_a_look(
            calibration, columns, log_work=log_work, rows=rows, memory=memory, log_limit=log_limit
        )
        closer = columns.take(rows)
        time, variance, _ = calibration.time.predict(closer)
        return cls(
            calibration=calibration,
            columns=columns,
            memory=memory,
            log_work=log_work,
            rows=rows,
            log_rate=log_work[rows] - time,
            deviation=np.sqrt(variance),
            fit_probability=calibration.fit_probability(
                memory.take(rows), headroom_gib=headroom_gib
            ),
            headroom_gib=headroom_gib,
        )

    @cached_property
    def log_fit(self) -> Array:
        return np.asarray(np.log(np.maximum(self.fit_probability, LEAST_FIT)))

    def score(self, *, best: float | None, failed: bool) -> Array:
        """Return what a trial of each is worth, as a logarithm, shape (k,).

        Log expected improvement on the best measured rate (Jones et al. 1998, eq. 15), less the
        `discount` for its chance not to fit; the mean instead of the improvement where nothing is
        measured.

        Args:
            best: logarithm of the best measured objective; None while nothing has run.
            failed: whether something has run out of memory.
        """
        if best is None:
            likely = WEIGHT_AT_FIRST * self.log_fit if not failed else discount(self.log_fit)
            return self.log_rate + likely
        improvement = log_expected_improvement(self.log_rate, self.deviation, best)
        return improvement + discount(self.log_fit)

    def expected_saving(self, *, best: float) -> Array:
        """Return the share of a training's time that a trial of each is expected to save, shape
        (k,): `E[1 - best/rate]` where its rate is the higher one, times the probability that it
        fits.

        Args:
            best: logarithm of the best measured objective.
        """
        s = np.maximum(self.deviation, 1e-9)
        lead = self.log_rate - best
        remains = np.exp(0.5 * s**2 - lead + scipy.special.log_ndtr(lead / s - s))
        return np.asarray(
            self.fit_probability * np.maximum(scipy.special.ndtr(lead / s) - remains, 0.0)
        )


def discount(log_fit: Array) -> Array:
    """Return what is added to a log worth for a log probability of fitting, 0 or less."""
    hardly = np.log(HARDLY)
    likely, unlikely = np.maximum(log_fit, hardly), np.minimum(log_fit - hardly, 0.0)
    return np.asarray(WEIGHT_OF_FITTING * likely + WEIGHT_OF_HARDLY_FITTING * unlikely)


def worth_a_look(
    calibration: Calibration,
    columns: Columns,
    *,
    log_work: Array,
    rows: Rows,
    memory: Columns,
    log_limit: float,
) -> Rows:
    """Return all of `rows`, or MANY of them.

    Args:
        memory: see `Belief`.
        log_limit: see `Calibration.log_limit`.
    """
    if len(rows) <= MANY:
        return rows
    offered = columns.take(rows)
    needed = calibration.memory.mean(memory.take(rows), labelled=True)
    fits = scipy.special.log_ndtr((log_limit - needed) / ROUGH_SPREAD)
    promise = log_work[rows] - calibration.time.mean(offered) + WEIGHT_OF_FITTING * fits
    order = rows[np.argsort(-promise, kind="stable")]
    half = MANY // 2
    spread = np.linspace(half, len(order) - 1, half).astype(np.int64)
    return np.concatenate([order[:half], order[spread]])


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """Return `log(s (phi(z) + z Phi(z)))` with `z = (mean - best)/s`, shape (n,), where z is far
    below 0 by its asymptote `phi(z)/z^2`."""
    s = np.maximum(deviation, 1e-9)
    z = (mean - best) / s
    log_density = -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi)
    far = np.minimum(z, -5.0)
    near = np.maximum(z, -5.0)
    near_value = np.log(
        np.exp(-0.5 * near**2) / np.sqrt(2.0 * np.pi) + near * scipy.special.ndtr(near)
    )
    return np.asarray(np.log(s) + np.where(z < -5.0, log_density - 2.0 * np.log(-far), near_value))
