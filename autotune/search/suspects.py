"""Failures other than memory: properties that layouts with the same failure share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autotune.failures import cause_of
from autotune.search.layouts import LAYOUT_DIMENSIONS, Integers
from autotune.search.trial import SearchTrial
from search_spaces.dimensions import OF_EXPERTS
from search_spaces.lattice import Lattice

REPEATS = 2
"""Failures with one cause from which on it is ascribed to what their layouts share."""


def suspected(lattice: Lattice, trials: Sequence[SearchTrial]) -> Integers:
    """Return how many suspected values each strategy of `lattice` has, shape (n,).

    A value is suspected if all failures of one repeated cause have it, the space has other values,
    and no strategy with it has run.
    """
    counts = np.zeros(len(lattice), dtype=np.int64)
    for name, value in sorted(_suspects(lattice, trials), key=repr):
        counts += lattice[name] == value
    return counts


def _suspects(lattice: Lattice, trials: Sequence[SearchTrial]) -> set[tuple[str, Any]]:
    by_cause: Mapping[str, list[SearchTrial]] = defaultdict(list)
    for trial in trials:
        if trial.state == "failed" and not trial.out_of_memory and trial.cause:
            by_cause[cause_of(trial.cause)].append(trial)
    chosen = [
        name
        for name in (*LAYOUT_DIMENSIONS, *OF_EXPERTS, *lattice.settings)
        if len(np.unique(lattice[name])) > 1
    ]
    innocent = {
        (name, trial.strategy.value(name))
        for trial in trials
        if trial.state == "ok"
        for name in chosen
    }
    suspects: set[tuple[str, Any]] = set()
    for alike in by_cause.values():
        if len(alike) >= REPEATS:
            for name in chosen:
                values = {trial.strategy.value(name) for trial in alike}
                if len(values) == 1:
                    suspects.add((name, values.pop()))
    return suspects - innocent
