"""Few replicas for many, or a short pipeline for a long one: the time of a wide run told from that
of a narrow one that was measured, where the two differ in data-parallel replicas alone, or in the
number of stages, each with as many layers."""

from __future__ import annotations

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.posterior import Posterior
from autotune.cost_model.columns import Array, Columns

SPREAD_OF_A_DOUBLING = 0.015
"""Standard deviation of the logarithm of what the formulas get wrong for each doubling of the
replicas. Over published pairs it is 0.5 to 1 % at 2 to 8 times the replicas within few nodes, and
5 to 7 % at 16 to 128 times: stragglers and switches that no formula has add up with the size."""

SPREAD_OF_A_LONGER_PIPELINE = 0.03
"""The same for each doubling of the stages. Assumed: no published runs differ in that alone. What
GAS + PP - 1 slots and the two end stages say is exact but for how transfers hide, and for the
stages' waiting for the slowest of more."""

REPEATS = 0.02
"""The same of two runs that differ in nothing: each repeats within 1 to 1.5 %."""


def projected(
    time: Mixture, *, narrow: Columns, wide: Columns, log_time: Array
) -> tuple[Array, Array]:
    """Return the mean and variance of the logarithm of the wide runs' times as they would be
    measured, shape (n,) each.

    The measured time is multiplied by the ratio of both by the formulas. What these get wrong of a
    strategy at any width drops out; how far the constants of the ratio are known does not.

    Args:
        time: calibrated on trials of the machine, the narrow ones among them.
        narrow, wide: n strategies, equal in all but replicas, or stages and layers, and what
            follows from them.
        log_time: shape (n,), logarithm of the seconds of a step, measured of the narrow ones.
    """
    weights = np.array([weight for weight, _ in time.members])[:, np.newaxis]
    each = [_log_ratio(posterior, narrow, wide) for _, posterior in time.members]
    ratios, variances = (np.array(stacked) for stacked in zip(*each, strict=True))
    ratio = np.sum(weights * ratios, axis=0)
    of_constants = np.sum(weights * (variances + (ratios - ratio) ** 2), axis=0)
    doublings = np.log2(wide["data_parallel"] / narrow["data_parallel"])
    longer = np.log2(wide["pipeline_parallel"] / narrow["pipeline_parallel"])
    of_width = (SPREAD_OF_A_DOUBLING * doublings) ** 2 + (SPREAD_OF_A_LONGER_PIPELINE * longer) ** 2
    return log_time + ratio, of_constants + of_width + REPEATS**2


def log_ratio(time: Mixture, *, narrow: Columns, wide: Columns) -> Array:
    """Return the logarithm of the wide runs' times over the narrow ones', shape (n,), by the most
    probable constants."""
    best, as_measured = time.best, np.zeros(len(narrow))
    values = [best.quantity.log_value(best.z, each, as_measured) for each in (wide, narrow)]
    return np.broadcast_to(values[0] - values[1], len(narrow))


def _log_ratio(posterior: Posterior, narrow: Columns, wide: Columns) -> tuple[Array, Array]:
    """Return the logarithm of the ratio of times by the formulas, and its variance by their
    constants', shape (n,) each."""
    measured = np.zeros(len(narrow))
    narrow_value, narrow_slopes = posterior.quantity.linearised(posterior.z, narrow, measured)
    wide_value, wide_slopes = posterior.quantity.linearised(posterior.z, wide, measured)
    slopes = wide_slopes - narrow_slopes
    return wide_value - narrow_value, np.sum((slopes @ posterior.covariance) * slopes, axis=1)
