"""80 % intervals from draws of a belief."""

from __future__ import annotations

import numpy as np

from autotune.cost_model.columns import Array

ENDS = (10.0, 90.0)
"""Percentiles of the draws, which hold 80 % of them."""


def interval(middle: Array, draws: Array) -> tuple[Array, Array]:
    """Return the low and the high end of each interval, shape (n,): those of the draws, shape (k,
    n), so far apart that `middle`, shape (n,), lies between them."""
    low, high = np.percentile(draws, ENDS, axis=0)
    return np.minimum(low, middle), np.maximum(high, middle)
