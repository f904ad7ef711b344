"""Effects of trainer-defined dimensions on time and memory, which are learned only from trials."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.cost_model.columns import Array, Columns
from search_spaces.dimensions import Scalar
from search_spaces.strategy import are_numbers, in_order

TIME_SPREAD = 0.12
MEMORY_SPREAD = 0.08
"""Assumed standard deviations of the logarithm of one value's effect, relative to the effect common
to all values. The priors have the tails of all constants."""

RANKS = 2.0
"""Distance in ranks of numeric values at which the correlation of their effects falls to 1/e."""

APART = 1.0
"""Distance between two values, in doublings, along the axes of `posterior.coordinates`. An effect
may depend on the layout, but less than on a doubling of another dimension."""


@dataclass(frozen=True)
class OwnLevels:
    """One trainer-defined dimension.

    Attributes:
        values: every value of the trials and of the space; numbers ascending.
    """

    name: str
    values: tuple[Scalar, ...]

    @property
    def ordered(self) -> bool:
        return are_numbers(self.values)

    @cached_property
    def root(self) -> Array:
        """Square root of the correlation between the effects of the k values, shape (k, k);
        neighbouring numbers have similar effects."""
        if not self.ordered:
            return np.eye(len(self.values))
        ranks = np.arange(len(self.values), dtype=np.float64)
        correlation = np.exp(-np.abs(ranks[:, np.newaxis] - ranks) / RANKS)
        return np.asarray(np.linalg.cholesky(correlation))

    def indicators(self, columns: Columns) -> Array:
        rows = [columns.has_setting(self.name, value) for value in self.values]
        return np.stack([np.broadcast_to(row, len(columns)) for row in rows])


def own_levels(
    settings: Mapping[str, Sequence[Scalar]], columns: Sequence[Columns]
) -> tuple[OwnLevels, ...]:
    """Return the trainer-defined dimensions of a space and of observations, ordered by name."""
    found = {name: list(values) for name, values in settings.items()}
    for name, value in (key for each in columns for key in each.settings):
        values = found.setdefault(name, [])
        if value not in values:
            values.append(value)
    return tuple(OwnLevels(name, in_order(found[name])) for name in sorted(found))


def effects(columns: Columns, levels: Sequence[OwnLevels], *, spread: float) -> Array:
    """Return the derivative of the quantity's logarithm by each unknown of `levels`, one per value,
    shape (k, n)."""
    parts = [spread * each.root.T @ each.indicators(columns) for each in levels]
    return np.concatenate(parts) if parts else np.zeros((0, len(columns)))


def axes(columns: Columns, levels: Sequence[OwnLevels]) -> Iterator[Array]:
    """Yield the coordinates, shape (n,) each, that separate strategies by their values."""
    for each in levels:
        indicators = each.indicators(columns)
        if each.ordered:
            yield APART * np.arange(len(each.values)) @ indicators
        else:
            yield from APART / np.sqrt(2.0) * indicators
