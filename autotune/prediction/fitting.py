"""Strategies of a space that probably fit into memory."""

from __future__ import annotations

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns, Mask
from autotune.cost_model.estimate import Estimate
from autotune.prediction.strategy import PROBABLE
from search_spaces.lattice import Lattice
from search_spaces.transformer import Transformer

BLOCK = 8192
PAIRS = 200_000
"""Maximum rows, and row-observation pairs, whose probability is computed at a time: tens of
megabytes."""

CERTAIN = 3.0
"""Beyond this factor below or above the limit, the formulas alone decide."""


def probably_fits(
    calibration: Calibration,
    transformer: Transformer,
    lattice: Lattice,
    estimated: Estimate,
    *,
    headroom_gib: float = 0.0,
) -> Mask:
    """Return which strategies probably fit into memory, shape (n,).

    Args:
        estimated: of the lattice, with the calibration's parameters.
        headroom_gib: memory that must stay free.
    """
    limit_gib = max(estimated.limit_leaving(headroom_gib), 0.0)
    load = estimated.memory_gib / max(limit_gib, 1e-9)
    fits = load <= 1.0
    open_rows = np.flatnonzero((load > 1.0 / CERTAIN) & (load < CERTAIN))
    columns = Columns.of(transformer, lattice)
    block = min(BLOCK, PAIRS // (1 + len(calibration.observations)))
    for start in range(0, len(open_rows), block):
        rows = open_rows[start : start + block]
        probability = calibration.fit_probability(columns.take(rows), headroom_gib=headroom_gib)
        fits[rows] = probability > PROBABLE
    return fits
