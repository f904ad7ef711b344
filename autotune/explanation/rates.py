"""Predicted rates of a whole space, given all measurements, with 80 % intervals; and their Shapley
values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import factorial

import numpy as np
import scipy
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from autotune.calibration import Calibration
from autotune.calibration.pathwise import mean_and_draws
from autotune.cost_model.columns import Array, Columns, Rows
from autotune.schemas.choices import Objective
from autotune.search.layouts import as_numbers, log_work
from search_spaces.dimensions import ACCUMULATION, DIMENSIONS, Scalar
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace

MOST_ROWS = 8192
PAIRS = 1_000_000
"""Maximum strategies, and strategy-observation pairs, in one forecast: some tens of megabytes."""

ENDS = (10.0, 90.0)
"""Percentiles that bound the central 80 %."""

MOST_STRATEGIES = 50_000
"""Maximum number of strategies that are counted: sums run over all 2^d sets of dimensions."""

DRAWS = 64
LEAST_DRAWS = 16
CELLS = 640_000
"""Maximum product of strategies and draws."""


@dataclass(frozen=True, kw_only=True, eq=False)
class BelievedRates:
    """Predicted rates of the legal strategies of a space.

    Attributes:
        lattice: the n strategies counted; an even subsample of more than MOST_STRATEGIES.
        log_rate: shape (n,), mean of the logarithm of the objective.
        draws: shape (n, k), joint draws of the same.
        settings: trainer-defined dimension -> its values, in order.
    """

    lattice: Lattice
    objective: Objective
    log_rate: Array
    draws: Array
    settings: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        space: SearchSpace,
        calibration: Calibration,
        *,
        objective: Objective = "tokens_per_s",
        least_fit_probability: float = 0.0,
        headroom_gib: float = 0.0,
        seed: int = 0,
    ) -> BelievedRates:
        """Forecast every strategy of a space.

        Args:
            calibration: of the space's machine.
            least_fit_probability: minimum probability of fitting; 0 counts every legal strategy. If
                no strategy reaches it, all are counted.
            headroom_gib: memory that must stay free.
            seed: of the draws.
        """
        lattice = space.lattice()
        columns = Columns.of(space.transformer, lattice)
        with threadpool_limits(limits=1, user_api="blas"):
            if least_fit_probability > 0.0:
                fits = [
                    calibration.fit_probability(block, headroom_gib=headroom_gib)
                    for block in blocks(columns, calibration)
                ]
                rows = np.flatnonzero(np.concatenate(fits) >= least_fit_probability)
                if len(rows):
                    lattice, columns = lattice.take(rows), columns.take(rows)
            if len(lattice) > MOST_STRATEGIES:
                rows = np.linspace(0, len(lattice) - 1, MOST_STRATEGIES).astype(np.int64)
                lattice, columns = lattice.take(rows), columns.take(rows)
            count = int(np.clip(CELLS // max(len(lattice), 1), LEAST_DRAWS, DRAWS))
            time, draws = mean_and_draws(
                calibration.time, columns, count=count, generator=np.random.default_rng(seed)
            )
        work = log_work(lattice, space.transformer, space.machine, objective=objective)
        return cls(
            lattice=lattice,
            objective=objective,
            log_rate=work - time,
            draws=np.ascontiguousarray((work - draws).T),
            settings=space.settings,
        )

    @cached_property
    def at_fixed_nodes(self) -> BelievedRates:
        """The strategies on the most nodes, if the objective is tokens/s, where more nodes are
        always faster and would hide the effect of the layout; otherwise all strategies."""
        nodes = self.lattice["num_nodes"]
        if self.objective != "tokens_per_s" or not len(nodes):
            return self
        rows = np.flatnonzero(nodes == nodes.max())
        return replace(
            self,
            lattice=self.lattice.take(rows),
            log_rate=self.log_rate[rows],
            draws=self.draws[rows],
        )

    @cached_property
    def dimensions(self) -> tuple[str, ...]:
        """Dimensions in which the strategies differ, without the accumulation if the others
        determine it, as under a fixed global batch."""
        every = (*DIMENSIONS, *self.settings)
        varying = [name for name in every if len(self.values(name)) > 1]
        others = [name for name in varying if name != ACCUMULATION]
        if ACCUMULATION in varying and others:
            keys = np.stack([self.level(name) for name in others], axis=1)
            if len(np.unique(keys, axis=0)) == len(self.lattice):
                return tuple(others)
        return tuple(varying)

    @cached_property
    def levels(self) -> Integers:
        columns = [self.level(name) for name in self.dimensions]
        empty = np.zeros((len(self.lattice), 0), dtype=np.int64)
        return np.stack(columns, axis=1) if columns else empty

    def values(self, dimension: str) -> tuple[Scalar, ...]:
        numbers = as_numbers(dimension, self.lattice[dimension], self.settings)
        _, first = np.unique(numbers, return_index=True)
        return tuple(self.lattice[dimension][first].tolist())

    def level(self, dimension: str) -> Integers:
        numbers = as_numbers(dimension, self.lattice[dimension], self.settings)
        return np.asarray(np.unique(numbers, return_inverse=True)[1], dtype=np.int64)


def blocks(columns: Columns, calibration: Calibration) -> Iterator[Columns]:
    """Yield all rows in order, in blocks small enough for one forecast; one empty block if there
    are none."""
    size = max(1, min(MOST_ROWS, PAIRS // (1 + len(calibration.observations))))
    for start in range(0, max(len(columns), 1), size):
        yield columns.take(slice(start, min(start + size, len(columns))))


def interval(middle: Array, draws: Array) -> tuple[Array, Array]:
    """Return the lower and upper bounds, shape (n,) each, of draws of shape (k, n), widened to
    include `middle` of shape (n,)."""
    low, high = np.percentile(draws, ENDS, axis=0)
    return np.minimum(low, middle), np.maximum(high, middle)


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
    rows = np.arange(n) if at is None else at
    table = figures.reshape(n, -1)
    contributions = np.zeros((d, len(rows) * table.shape[1]))
    weights = _weights(d)
    for start in range(0, 1 << d, COALITIONS):
        block = range(start, min(start + COALITIONS, 1 << d))
        seen = np.stack([_seen(levels, table, coalition, rows) for coalition in block])
        contributions += weights[:, block.start : block.stop] @ seen.reshape(len(block), -1)
    shape = (d, len(rows)) if figures.ndim == 1 else (d, len(rows), table.shape[1])
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


def _seen(levels: Integers, table: Array, coalition: int, rows: Rows) -> Array:
    chosen = [column for column in range(levels.shape[1]) if coalition >> column & 1]
    group, count = grouped(levels[:, chosen])
    size = np.maximum(np.bincount(group, minlength=count), 1)
    means = group_sums(group, table, count) / size[:, np.newaxis]
    return np.asarray(means[group[rows]])


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
