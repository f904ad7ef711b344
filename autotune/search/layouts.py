"""The layouts of a space: what there is to try, and what the cost model says of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import estimate
from autotune.schemas import Objective
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import DIMENSIONS, Precision, Strategy
from search_spaces.transformer import ActivationCheckpointing

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LAYOUT_DIMENSIONS = tuple(sorted(set(DIMENSIONS) - {"gradient_accumulation_steps"}))
"""Alphabetical, as DeepHyper returns the names of a problem."""

_LEVELS = {
    "activation_checkpointing": get_args(ActivationCheckpointing),
    "precision": get_args(Precision),
}
_DOUBLING = (
    "tensor_parallel",
    "pipeline_parallel",
    "micro_batch_size",
    "num_nodes",
    "virtual_stages",
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Layouts:
    """One row for each layout, the highest predicted rate first.

    Twins that differ in `gradient_accumulation_steps` alone are one row: a trial measures a
    layout's whole GAS curve. The twin with the best predicted rate stands for them, among those
    predicted to fit if any are (fewer micro-batches than stages hold fewer activations).

    Attributes:
        log_rate: shape (n,), natural logarithm of the predicted objective.
        memory_gib: shape (n,), predicted peak of the fullest rank.
        memory_limit_gib: what the cost model takes to fit.
    """

    lattice: Lattice
    log_rate: Floats
    memory_gib: Floats
    memory_limit_gib: float

    @classmethod
    def of(cls, space: SearchSpace, *, objective: Objective) -> Layouts:
        lattice = space.lattice()
        predicted = estimate(space.transformer, space.machine, lattice)
        samples_per_s = lattice.global_batch_size / predicted.iteration_time_s
        rate = samples_per_s * space.transformer.seq_length
        if objective == "tokens_per_s_per_gpu":
            rate = rate / lattice.world_size
        log_rate = np.log(rate)
        rows = _best_twins(lattice, log_rate, fits=predicted.fits)
        return cls(
            lattice=lattice.take(rows),
            log_rate=log_rate[rows],
            memory_gib=np.asarray(predicted.memory_gib[rows], dtype=np.float64),
            memory_limit_gib=predicted.memory_limit_gib,
        )

    def __len__(self) -> int:
        return len(self.lattice)

    def __deepcopy__(self, memo: object) -> Layouts:
        """Return itself: it never changes, and scikit-learn copies an estimator's parameters at
        will."""
        return self

    @cached_property
    def numbers(self) -> Integers:
        """Shape (n, 10): each of LAYOUT_DIMENSIONS as a whole number, strings by their level."""
        columns = [_as_numbers(name, self.lattice[name]) for name in LAYOUT_DIMENSIONS]
        return np.stack(columns, axis=1)

    @cached_property
    def features(self) -> Floats:
        """Shape (n, 10): where the layouts lie to a kernel; what doubles is one apart."""
        doubling = [name in _DOUBLING for name in LAYOUT_DIMENSIONS]
        features = self.numbers.astype(np.float64)
        features[:, doubling] = np.log2(features[:, doubling])
        return features

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        return {key.tobytes(): row for row, key in enumerate(self.numbers)}

    def rows_of_numbers(self, numbers: Integers) -> Integers:
        """Return the rows with these `numbers`, shape (k, 10); KeyError for one that is not
        here."""
        keys = np.ascontiguousarray(numbers, dtype=np.int64)
        return np.array([self._row_of[key.tobytes()] for key in keys], dtype=np.int64)

    def row_of(self, strategy: Strategy) -> int | None:
        """Return the row of a strategy's layout, whatever its GAS; None where the space lacks
        it."""
        single = Lattice.of([strategy], gpus_per_node=self.lattice.gpus_per_node)
        key = np.stack([_as_numbers(name, single[name]) for name in LAYOUT_DIMENSIONS], axis=1)
        return self._row_of.get(key[0].tobytes())


def _as_numbers(name: str, column: NDArray[Any]) -> Integers:
    if name in _LEVELS:
        level = {value: number for number, value in enumerate(_LEVELS[name])}
        return np.array([level[value] for value in column.tolist()], dtype=np.int64)
    return column.astype(np.int64)


def _best_twins(lattice: Lattice, log_rate: Floats, *, fits: NDArray[np.bool_]) -> Integers:
    """Return rows of the best twin of each layout, best first; equal ones in the strategies'
    order."""
    columns: Sequence[Integers] = [_as_numbers(name, lattice[name]) for name in LAYOUT_DIMENSIONS]
    gas = lattice["gradient_accumulation_steps"]
    order = np.lexsort((gas, *columns[::-1], -log_rate, ~fits))
    _, first = np.unique(np.stack(columns, axis=1)[order], axis=0, return_index=True)
    best = order[np.sort(first)]
    return np.asarray(best[np.argsort(-log_rate[best], kind="stable")], dtype=np.int64)
