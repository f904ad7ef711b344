"""Landscapes as libraries see them: dimensions with levels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.replay.landscapes import STRATEGY_COLUMNS, Landscape

Levels = NDArray[np.int64]


class Grid:
    """A landscape as libraries see it: dimensions with ordered levels, of which some combinations
    are strategies.

    Attributes:
        names: of the dimensions that have several values, alphabetical as DeepHyper gives them.
        levels: shape (n, d), the number of each strategy's value among those that occur.
    """

    def __init__(self, landscape: Landscape) -> None:
        columns = {name: _levels(landscape, name) for name in STRATEGY_COLUMNS}
        self.names = sorted(name for name, column in columns.items() if column.max() > 0)
        self.levels: Levels = np.stack([columns[name] for name in self.names], axis=1)
        self._untried = np.ones(len(landscape), dtype=np.bool_)

    @property
    def untried(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._untried)

    def point(self, row: int) -> dict[str, int]:
        return dict(zip(self.names, self.levels[row].tolist(), strict=True))

    def take(self, point: dict[str, int]) -> int | None:
        """The untried strategy at or next to a point, which then is tried; None where all are.

        Distances are in levels, as a share of each dimension's range.
        """
        rows = self.untried
        if not len(rows):
            return None
        wanted = np.array([point[name] for name in self.names])
        apart = np.abs(self.levels[rows] - wanted) / self.levels.max(axis=0)
        row = int(rows[np.argmin(apart.sum(axis=1))])
        self._untried[row] = False
        return row


def _levels(landscape: Landscape, name: str) -> Levels:
    """Not known comes first."""
    cells = [row.figures.get(name, row.words.get(name, -1.0)) for row in landscape.rows]
    _, level = np.unique(np.array(cells), return_inverse=True)
    return np.asarray(level, dtype=np.int64)
