"""What dimensions of a trainer's own do to time and memory: no formula says it, so trials do."""

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
"""Standard deviations, as logarithms, of what one value of such a dimension does, beside what is
alike for all: assumed. Their priors have the tails of all constants."""

RANKS = 2.0
"""Places in the order of numbers at which what two of them share falls to 1/e."""

APART = 1.0
"""Distance of two values from each other beside those of `posterior.coordinates`, in doublings:
what one does may depend on the layout, but hardly as much as on a doubling of another dimension."""


@dataclass(frozen=True)
class OwnLevels:
    """One dimension as a calibration knows it.

    Attributes:
        values: all that trials had, and the space has; numbers ascending.
    """

    name: str
    values: tuple[Scalar, ...]

    @property
    def ordered(self) -> bool:
        return are_numbers(self.values)

    @cached_property
    def root(self) -> Array:
        """Square root of the correlation of what the k values do, shape (k, k): of numbers, those
        that lie next to each other do alike."""
        if not self.ordered:
            return np.eye(len(self.values))
        ranks = np.arange(len(self.values), dtype=np.float64)
        correlation = np.exp(-np.abs(ranks[:, np.newaxis] - ranks) / RANKS)
        return np.asarray(np.linalg.cholesky(correlation))

    def indicators(self, columns: Columns) -> Array:
        """Return whether strategies have each of the values, shape (k, n)."""
        rows = [columns.has_setting(self.name, value) for value in self.values]
        return np.stack([np.broadcast_to(row, len(columns)) for row in rows])


def own_levels(
    settings: Mapping[str, Sequence[Scalar]], columns: Sequence[Columns]
) -> tuple[OwnLevels, ...]:
    """Return the dimensions, by name, of a space and of observations of whatever trainers."""
    found = {name: list(values) for name, values in settings.items()}
    for name, value in (key for each in columns for key in each.settings):
        values = found.setdefault(name, [])
        if value not in values:
            values.append(value)
    return tuple(OwnLevels(name, in_order(found[name])) for name in sorted(found))


def effects(columns: Columns, levels: Sequence[OwnLevels], *, spread: float) -> Array:
    """Return what each unknown of `levels`, one for each value, adds to the logarithm of the
    quantity, shape (k, n)."""
    parts = [spread * each.root.T @ each.indicators(columns) for each in levels]
    return np.concatenate(parts) if parts else np.zeros((0, len(columns)))


def axes(columns: Columns, levels: Sequence[OwnLevels]) -> Iterator[Array]:
    """Yield the axes, shape (n,) each, on which strategies lie apart by their values."""
    for each in levels:
        indicators = each.indicators(columns)
        if each.ordered:
            yield APART * np.arange(len(each.values)) @ indicators
        else:
            yield from APART / np.sqrt(2.0) * indicators
