"""Shapley values over a table: the contribution of each column to each row's figure."""

from __future__ import annotations

from collections.abc import Iterator
from math import factorial

import numpy as np
import scipy
from numpy.typing import NDArray

from autotune.cost_model.columns import Array, Rows

Integers = NDArray[np.int64]

COALITIONS = 16
"""Number of coalitions computed at a time: some megabytes."""

ROOMY = 4
"""Cells per row up to which groups are numbered by their cell in the grid; above it, only occurring
groups are numbered."""


def shapley_values(levels: Integers, figures: Array, *, at: Rows | None = None) -> Array:
    """Return the exact contribution of each dimension to the figure of each row.

    The value of a coalition of dimensions, for a row, is the mean figure of all rows that agree
    with it in those dimensions; combinations that do not occur are not counted. Over all dimensions
    the contributions of a row add up to its figure minus the overall mean (Shapley 1953; for
    occurring rows, the observational game of Sundararajan and Najmi 2020).

    Args:
        levels: shape (n, d), index of each row's value in each dimension, from 0; rows are
            distinct.
        figures: shape (n,), or (n, k) for k figures at once.
        at: shape (m,), rows to return; all by default.

    Returns:
        Shape (d, m), or (d, m, k).
    """
    n, d = levels.shape
    asked = np.arange(n) if at is None else at
    table = figures.reshape(n, -1)
    contributions = np.zeros((d, len(asked) * table.shape[1]))
    weights = _weights(d)
    for start in range(0, 1 << d, COALITIONS):
        block = range(start, min(start + COALITIONS, 1 << d))
        seen = np.stack([_seen(levels, table, coalition, asked) for coalition in block])
        contributions += weights[:, block.start : block.stop] @ seen.reshape(len(block), -1)
    shape = (d, len(asked)) if figures.ndim == 1 else (d, len(asked), table.shape[1])
    return contributions.reshape(shape)


def _weights(d: int) -> Array:
    """Return the weight of each coalition's value in the contribution of each dimension, shape (d,
    2^d): `s! (d - s - 1)! / d!`, positive with the dimension and negative without it."""
    by_size = [factorial(size) * factorial(d - size - 1) / factorial(d) for size in range(d)]
    weights = np.empty((d, 1 << d))
    for coalition in range(1 << d):
        size = coalition.bit_count()
        for dimension in range(d):
            inside = coalition >> dimension & 1
            weights[dimension, coalition] = by_size[size - 1] if inside else -by_size[size]
    return weights


def _seen(levels: Integers, table: Array, coalition: int, asked: Rows) -> Array:
    """Return the value of one coalition for the rows `asked`, shape (m, k)."""
    chosen = [column for column in range(levels.shape[1]) if coalition >> column & 1]
    group, count = grouped(levels[:, chosen])
    size = np.maximum(np.bincount(group, minlength=count), 1)
    means = group_sums(group, table, count) / size[:, np.newaxis]
    return np.asarray(means[group[asked]])


def grouped(levels: Integers) -> tuple[Integers, int]:
    """Return the group of each row by its combination of levels, shape (n,), and the number of
    groups, some of which may be empty."""
    group, count = np.zeros(len(levels), dtype=np.int64), 1
    for column in _columns(levels):
        size = int(column.max(initial=0)) + 1
        group, count = group * size + column, count * size
        if count > ROOMY * len(levels):
            _, group = np.unique(group, return_inverse=True)
            count = int(group.max(initial=0)) + 1
    return group, count


def _columns(levels: Integers) -> Iterator[Integers]:
    return (levels[:, column] for column in range(levels.shape[1]))


def group_sums(group: Integers, table: Array, count: int) -> Array:
    """Return the sum of the rows of each group, shape (count, k)."""
    if table.shape[1] == 1:
        sums = np.bincount(group, weights=table[:, 0], minlength=count).astype(np.float64)
        return sums[:, np.newaxis]
    members = scipy.sparse.csc_array(
        (np.ones(len(group)), group, np.arange(len(group) + 1)), shape=(count, len(group))
    )
    return np.asarray(members @ table)
