"""Split large spaces into blocks."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns

MOST_ROWS = 8192
PAIRS = 1_000_000
"""Maximum strategies, and strategy-observation pairs, in one forecast: some tens of megabytes."""


def blocks(columns: Columns, calibration: Calibration) -> Iterator[Columns]:
    """Yield all rows in order, in blocks small enough for one forecast; one empty block if there
    are none."""
    size = max(1, min(MOST_ROWS, PAIRS // (1 + len(calibration.observations))))
    for start in range(0, max(len(columns), 1), size):
        yield columns.take(slice(start, min(start + size, len(columns))))
