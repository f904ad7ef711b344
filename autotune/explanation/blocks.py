"""Large spaces, a part at a time."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns

MOST_ROWS = 8192
PAIRS = 1_000_000
"""Strategies, and pairs of a strategy and an observation, that are forecast at a time: some tens of
megabytes."""


def blocks(columns: Columns, calibration: Calibration) -> Iterator[Columns]:
    """Yield all rows in their order, so many at a time that a forecast of them is held with ease;
    one empty block where there are none."""
    size = max(1, min(MOST_ROWS, PAIRS // (1 + len(calibration.observations))))
    for start in range(0, max(len(columns), 1), size):
        yield columns.take(slice(start, min(start + size, len(columns))))
