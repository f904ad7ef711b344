"""80 % intervals from posterior draws."""

from __future__ import annotations

import numpy as np

from autotune.cost_model.columns import Array

ENDS = (10.0, 90.0)
"""Percentiles that bound the central 80 %."""


def interval(middle: Array, draws: Array) -> tuple[Array, Array]:
    """Return the lower and upper bounds, shape (n,) each, of draws of shape (k, n), widened to
    include `middle` of shape (n,)."""
    low, high = np.percentile(draws, ENDS, axis=0)
    return np.minimum(low, middle), np.maximum(high, middle)
