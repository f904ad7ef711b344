"""Searches that know only what is legal, for comparison with the calibrated one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from autotune.calibration.dominance import needs_as_much
from autotune.cost_model.columns import Columns
from autotune.schemas.choices import SearchMethod, Surrogate
from autotune.search.choice import choose_stock
from autotune.search.layouts import Integers, Layouts

Results = Mapping[int, float | str]
"""Of layouts that ended: the logarithm of the rate, or `OUT_OF_MEMORY` or another "F_…"."""

OUT_OF_MEMORY = "F_oom"

Chooser = Callable[[Integers, Results], int | None]
"""Given the open layouts and the results so far, return the next layout; None where none is worth
trying."""


def uncalibrated(
    method: SearchMethod, layouts: Layouts, columns: Columns, *, surrogate: Surrogate, seed: int
) -> Chooser | None:
    """Return the function that chooses layouts; None for the calibrated search.

    Args:
        columns: of the layouts.
        surrogate: of DeepHyper.
        seed: of all random draws.
    """
    if method == "calibrated":
        return None
    if method == "grid":
        order = least_parallel_first(layouts)

        def from_grid(open_layouts: Integers, results: Results) -> int | None:
            failed = [row for row, result in results.items() if result == OUT_OF_MEMORY]
            left = order[np.isin(order, open_layouts)]
            if failed:
                too_large = needs_as_much(columns.take(left), columns.take(np.array(failed)))
                left = left[~too_large.any(axis=1)]
            return int(left[0]) if len(left) else None

        return from_grid
    at_random = np.random.default_rng(seed).permutation(len(layouts))

    def from_random(open_layouts: Integers, _results: Results) -> int | None:
        return int(at_random[np.isin(at_random, open_layouts)][0])

    def from_deephyper(open_layouts: Integers, results: Results) -> int | None:
        offered = at_random[np.isin(at_random, open_layouts)]
        numbers = layouts.numbers
        told = [
            (numbers[row].tolist(), math.exp(result) if isinstance(result, float) else result)
            for row, result in results.items()
        ]
        names = layouts.point_dimensions
        asked = choose_stock(names, numbers[offered], surrogate=surrogate, told=told, seed=seed)
        return int(offered[asked])

    return from_deephyper if method == "deephyper" else from_random


def least_parallel_first(layouts: Layouts) -> Integers:
    """Return the layouts from the most nodes and the least model parallelism upward, shape (n,);
    among equal ones, those without recomputation first, then smaller micro-batches."""
    lattice = layouts.lattice
    recomputed = (lattice["activation_checkpointing"] != "none").astype(np.int64)
    keys = (
        -lattice["num_nodes"],
        lattice.model_parallel,
        lattice["tensor_parallel"],
        recomputed,
        lattice["micro_batch_size"],
        -lattice["zero_stage"],
    )
    return np.asarray(np.lexsort(keys[::-1]), dtype=np.int64)
