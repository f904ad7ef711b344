"""Searches that know only what is legal, for comparison with the calibrated one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from autotune.calibration.dominance import needs_as_much
from autotune.cost_model.columns import Columns
from autotune.schemas.choices import ChosenBy, SearchMethod, Surrogate
from autotune.search.choice import choose_stock
from autotune.search.layouts import IN_FLIGHT, Integers, Layouts

Results = Mapping[int, float | str]
"""Of layouts that ended: the logarithm of the rate, or `OUT_OF_MEMORY` or another "F_…"."""

OUT_OF_MEMORY = "F_oom"


class Choice(NamedTuple):
    """A layout to try, and what chose it."""

    layout: int
    by: ChosenBy


Chooser = Callable[[Integers, Results], Choice | None]
"""Given the open layouts and the results so far, return the next layout; None where none is worth
trying."""


MOST_INITIAL = 15
"""Initial points of DeepHyper: half of a campaign's default budget of trials."""


def uncalibrated(
    method: SearchMethod, layouts: Layouts, columns: Columns, *, surrogate: Surrogate, seed: int
) -> Chooser | None:
    """Return the function that chooses layouts; None for the calibrated search.

    The grid and DeepHyper skip layouts that need at least as much memory as one that ran out of it.
    DeepHyper's initial points are random, in the order of the random search. They are as many as
    its default, twice the dimensions plus one, but at most MOST_INITIAL, failures included, and
    more only until one succeeds. Dimensions with one value and those that follow from others are
    not counted.

    Args:
        columns: of the layouts.
        surrogate: of DeepHyper.
        seed: of all random draws.
    """
    if method == "calibrated":
        return None
    order = np.random.default_rng(seed).permutation(len(layouts))
    if method == "grid":
        order = least_parallel_first(layouts)
    varies = (layouts.numbers != layouts.numbers[:1]).any(axis=0)
    names = [name for name, varied in zip(layouts.point_dimensions, varies, strict=True) if varied]
    numbers = layouts.numbers[:, varies]
    initial = min(2 * len(set(names) - {IN_FLIGHT}) + 1, MOST_INITIAL)

    def next_layout(open_layouts: Integers, results: Results) -> Choice | None:
        left = order[np.isin(order, open_layouts)]
        failed = [row for row, result in results.items() if result == OUT_OF_MEMORY]
        if failed and method != "random":
            too_large = needs_as_much(columns.take(left), columns.take(np.array(failed)))
            left = left[~too_large.any(axis=1)]
        if not len(left):
            return None
        any_success = any(isinstance(result, float) for result in results.values())
        if method != "deephyper" or len(results) < initial or not any_success:
            return Choice(int(left[0]), "grid" if method == "grid" else "random")
        known = [
            (numbers[row].tolist(), math.exp(result) if isinstance(result, float) else result)
            for row, result in results.items()
        ]
        chosen = choose_stock(
            names, numbers[left], surrogate=surrogate, results=known, initial=initial, seed=seed
        )
        return Choice(int(left[chosen]), "surrogate")

    return next_layout


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
