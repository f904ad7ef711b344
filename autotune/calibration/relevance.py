"""How far earlier trials count for a campaign: by how well they predict its own first trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from autotune.calibration.mixture import Mixture
from autotune.calibration.observations import Observation
from autotune.calibration.sample import Sample

FACTORS = (1.0, 0.1, 0.0)
"""Factors on the weights of earlier times. 1 leaves them as they are, 0.1 adds an error of 9 % to
each, 0 leaves them out."""

LOG_ODDS = 1.0
"""Each factor is less likely than the one before by this much, before any own trial."""

FIRST = 12
"""Own trials that decide; later ones outweigh the earlier trials by themselves."""


def relevance(given: Callable[[float], Mixture], own: Sample) -> float:
    """Return the factor under which the earlier trials predicted a campaign's own best: the factor
    with the highest joint density of its first times.

    Args:
        given: factor -> the belief of time from the earlier trials, weighted by it.
        own: times of the campaign, in the order in which they were measured.
    """
    count = min(len(own.log_value), FIRST)
    if not count:
        return FACTORS[0]
    columns, values = own.columns.take(slice(0, count)), own.log_value[:count]
    scores = [
        given(factor).log_density(columns, values) - LOG_ODDS * place
        for place, factor in enumerate(FACTORS)
    ]
    return FACTORS[int(np.argmax(scores))]


def discounted(earlier: Sequence[Observation], factor: float) -> list[Observation]:
    """Return the earlier observations with the weights of their times multiplied by a factor; their
    memory keeps its weight."""
    if factor == 1.0:
        return list(earlier)
    memory = [replace(each, iteration_time_s=None) for each in earlier]
    if not factor:
        return memory
    timed = (replace(each, weight=factor * each.weight) for each in earlier)
    times = (
        replace(each, peak_memory_gib=None, peak_allocated_gib=None, fitted=None) for each in timed
    )
    return [*times, *memory]
