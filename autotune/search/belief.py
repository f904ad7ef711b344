"""Forecasts of candidates by the calibration, and what a trial of each is worth."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns, Mask, Rows
from autotune.schemas.predictions import LIKELY_TO_FIT

WEIGHT_OF_FITTING = 0.5
"""Power of the probability of fitting by which a trial's expected improvement is multiplied. A
failure leaves the best layout in hand, so the edge of memory, where the fastest layouts live, is
worth more than its probability says (with 1 it is shunned, without it every second trial fails)."""

WEIGHT_AT_FIRST = 0.3
"""The same before anything has run or failed."""

DOUBT = 0.05
"""Probability of something better below which it is not worth looking for."""

MARGIN = 0.01
"""Gain, as a share of the rate, below which nobody need go on searching."""

LEAST_FIT = 1e-6
"""Probability of fitting below which all layouts are alike: none is ruled out for good."""

LEAST_DEVIATION = 1e-9

MANY = 2000
"""Candidates whose deviation is worked out; of more, the most promising half of this number and as
many of the others, evenly spread; others have only a mean."""

ROUGH_SPREAD = 0.25
"""Standard deviation, as a logarithm, of memory where only its mean is worked out."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Belief:
    """Forecasts for `rows` of n candidates; arrays have shape (k,).

    Attributes:
        calibration: fitted to all observations.
        columns: of all n candidates; `memory` is that of what must fit for a trial to be
            worthwhile, usually the candidate itself.
        log_work: shape (n,), logarithm of the objective times the seconds of an iteration.
        rows: the candidates that may be chosen and are worth a closer look.
        log_rate, deviation: mean and standard deviation of the logarithm of the objective.
        fit_probability: probability that memory suffices, with the headroom free.
        headroom_gib: memory to leave free.
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
        """Return the belief of the most promising of `rows`, shape (m,), and of a sample of the
        others."""
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

    def take(self, positions: Rows) -> Belief:
        """Return the belief of some of the k candidates, in this order."""
        return replace(
            self,
            rows=self.rows[positions],
            log_rate=self.log_rate[positions],
            deviation=self.deviation[positions],
            fit_probability=self.fit_probability[positions],
        )

    @cached_property
    def log_fit(self) -> Array:
        return np.asarray(np.log(np.maximum(self.fit_probability, LEAST_FIT)))

    def promise(self, *, failed: bool) -> Array:
        """Return a score that ranks layouts before any measurement, shape (k,): the log rate, less
        a discount for the risk of not fitting.

        Args:
            failed: whether a trial has run out of memory.
        """
        weight = WEIGHT_OF_FITTING if failed else WEIGHT_AT_FIRST
        return self.log_rate + weight * self.log_fit

    def log_probability_better(self, best: float) -> Array:
        """Return the log probability that a layout fits and is better by MARGIN, shape (k,).

        Args:
            best: logarithm of the best measured objective.
        """
        lead = self.log_rate - best - np.log1p(MARGIN)
        better = scipy.special.log_ndtr(lead / np.maximum(self.deviation, LEAST_DEVIATION))
        return np.asarray(better + self.log_fit)

    def worth_trying(self, best: float) -> Mask:
        """Return which layouts are worth a trial, shape (k,): those likely to fit, and those whose
        promise justifies the risk of running out of memory."""
        promising = self.log_probability_better(best) >= np.log(DOUBT)
        return np.asarray(promising | (self.fit_probability >= LIKELY_TO_FIT))

    def weight(self, node_hours: Array) -> Array:
        """Return the weight of each layout's expected improvement, shape (k,): high if it is likely
        to fit, low if its trial takes many node-hours.

        Args:
            node_hours: of a trial of each, shape (k,).
        """
        return np.asarray(np.exp(WEIGHT_OF_FITTING * self.log_fit) / node_hours)

    def expected_saving(self, *, best: float) -> Array:
        """Return the share of a training's time that a trial of each is expected to save, shape
        (k,): `E[1 - best/rate]` over rates above the best, times the probability of fitting.

        Args:
            best: logarithm of the best measured objective.
        """
        s = np.maximum(self.deviation, LEAST_DEVIATION)
        lead = self.log_rate - best
        remains = np.exp(0.5 * s**2 - lead + scipy.special.log_ndtr(lead / s - s))
        return np.asarray(
            self.fit_probability * np.maximum(scipy.special.ndtr(lead / s) - remains, 0.0)
        )


def worth_a_look(
    calibration: Calibration,
    columns: Columns,
    *,
    log_work: Array,
    rows: Rows,
    memory: Columns,
    log_limit: float,
) -> Rows:
    """Return all of `rows`, or the MANY of them that are worth a closer look.

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
