"""The distinct layouts of a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import estimate, estimate_in
from autotune.measurement.metrics import SECONDS_PER_HOUR
from autotune.measurement.objectives import unknown_objective
from autotune.schemas.choices import Objective
from search_spaces.dimensions import LAYOUT, OF_EXPERTS, TABLE, Scalar
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy, in_order
from search_spaces.transformer import Transformer

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]

LAYOUT_DIMENSIONS = tuple(sorted(set(LAYOUT) - set(OF_EXPERTS)))

IN_FLIGHT = "micro_batches_in_flight"
"""`min(GAS, PP)`: twins that differ in it need different memory, so that one may run where the
other does not."""

POINT_DIMENSIONS = tuple(sorted((*LAYOUT_DIMENSIONS, IN_FLIGHT)))
"""What tells rows apart, besides dimensions of the trainer's own."""

_LEVELS: Mapping[str, Sequence[Scalar]] = {d.name: d.values for d in TABLE if d.is_named}


@dataclass(frozen=True, kw_only=True, eq=False)
class Layouts:
    """One row for each layout and number of micro-batches in flight, the highest predicted rate
    first.

    Strategies that differ in `gradient_accumulation_steps` but not in memory are one row, that with
    the best predicted rate: a trial measures a layout's whole GAS curve.

    Attributes:
        log_rate: shape (n,), natural logarithm of the predicted objective before any measurement.
        log_work: shape (n,), see `log_work`.
        memory_gib: shape (n,), predicted peak of the fullest rank before any measurement.
        memory_limit_gib: memory limit of the cost model.
        settings: dimensions of the trainer's own, and of experts -> their values, whose order
            numbers them.
    """

    lattice: Lattice
    log_rate: Floats
    log_work: Floats
    memory_gib: Floats
    memory_limit_gib: float
    settings: Mapping[str, Sequence[Scalar]]

    @classmethod
    def of(cls, space: SearchSpace, *, objective: Objective) -> Layouts:
        lattice = space.lattice()
        predicted = estimate_in(space, lattice)
        work = log_work(lattice, space.transformer, space.machine, objective=objective)
        log_rate = work - np.log(predicted.iteration_time_s)
        rows = _best_twins(lattice, log_rate, space.beyond_all)
        return cls(
            lattice=lattice.take(rows),
            log_rate=log_rate[rows],
            log_work=work[rows],
            memory_gib=np.asarray(predicted.memory_gib[rows], dtype=np.float64),
            memory_limit_gib=predicted.memory_limit_gib,
            settings=space.beyond_all,
        )

    def __len__(self) -> int:
        return len(self.lattice)

    @cached_property
    def count(self) -> int:
        return int(self._layout.max(initial=-1)) + 1

    @property
    def point_dimensions(self) -> tuple[str, ...]:
        return tuple(sorted((*POINT_DIMENSIONS, *self.settings)))

    @cached_property
    def numbers(self) -> Integers:
        return _numbers(self.lattice, self.settings)

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        return {key.tobytes(): row for row, key in enumerate(self.numbers)}

    def row_of(self, strategy: Strategy) -> int | None:
        """Return the row of a strategy; None if it is not in the space."""
        if any(strategy.value(name) not in values for name, values in self.settings.items()):
            return None
        single = Lattice.of([strategy], gpus_per_node=self.lattice.gpus_per_node)
        return self._row_of.get(_numbers(single, self.settings)[0].tobytes())

    @cached_property
    def in_flight(self) -> Integers:
        return _in_flight(self.lattice)

    @cached_property
    def _layout(self) -> Integers:
        columns = [
            as_numbers(name, self.lattice[name], self.settings)
            for name in (*LAYOUT_DIMENSIONS, *self.settings)
        ]
        _, which = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return np.asarray(which, dtype=np.int64).reshape(-1)

    def first_of_each(self, rows: Integers) -> Integers:
        _, first = np.unique(self._layout[rows], return_index=True)
        return np.asarray(rows[np.sort(first)], dtype=np.int64)

    def twins_of(self, row: int) -> Mask:
        return np.asarray(self._layout == self._layout[row])

    def covered_by(self, row: int) -> Mask:
        """Return the rows that a successful trial of a row covers, shape (n,): itself, and its
        twins with fewer micro-batches in flight, which need less memory."""
        fewer = self.in_flight <= self.in_flight[row]
        return np.asarray(self.twins_of(row) & fewer)


def log_work(
    lattice: Lattice, transformer: Transformer, machine: Machine, *, objective: Objective
) -> Floats:
    """Return the logarithm of the objective times the seconds of an iteration, shape (n,): the
    tokens of an iteration, per GPU, per node-hour, or per predicted power.

    The belief about time therefore decides under every objective. The power of all nodes, hosts
    included, is the uncalibrated cost model's: strategies on equally many nodes differ little in
    it, and a common factor changes no choice.

    Raises:
        InvalidInput: field `objective`: it is about energy, and the machine's power is unknown.
    """
    problem = unknown_objective(objective, machine)
    if problem is not None:
        raise problem
    tokens = np.log(lattice.global_batch_size * transformer.seq_length)
    if objective == "tokens_per_s_per_gpu":
        return np.asarray(tokens - np.log(lattice.world_size))
    if objective == "tokens_per_node_hour":
        return np.asarray(tokens + np.log(SECONDS_PER_HOUR) - np.log(lattice["num_nodes"]))
    if objective == "tokens_per_joule":
        predicted = estimate(transformer, machine, lattice)
        assert predicted.energy_joule is not None
        return np.asarray(tokens - np.log(predicted.energy_joule / predicted.iteration_time_s))
    return np.asarray(tokens)


def _in_flight(lattice: Lattice) -> Integers:
    least = np.minimum(lattice["gradient_accumulation_steps"], lattice["pipeline_parallel"])
    return np.asarray(least, dtype=np.int64)


def _numbers(lattice: Lattice, settings: Mapping[str, Sequence[Scalar]]) -> Integers:
    columns = {
        name: as_numbers(name, lattice[name], settings) for name in (*LAYOUT_DIMENSIONS, *settings)
    }
    columns[IN_FLIGHT] = _in_flight(lattice)
    return np.stack([columns[name] for name in sorted(columns)], axis=1)


def as_numbers(
    name: str, column: NDArray[Any], settings: Mapping[str, Sequence[Scalar]]
) -> Integers:
    """Return the values of a dimension as whole numbers, shape (n,): strings by their level, values
    of the trainer's own dimensions by their index in `settings` if they are not numbers."""
    levels = in_order(settings[name]) if name in settings else _LEVELS.get(name)
    if levels is not None:
        level = {value: number for number, value in enumerate(levels)}
        return np.array([level[value] for value in column.tolist()], dtype=np.int64)
    return column.astype(np.int64)


def _best_twins(
    lattice: Lattice, log_rate: Floats, settings: Mapping[str, Sequence[Scalar]]
) -> Integers:
    """Return the rows with the best rate among equal points, best first; ties in the order of the
    strategies."""
    columns: Sequence[Integers] = list(_numbers(lattice, settings).T)
    gas = lattice["gradient_accumulation_steps"]
    order = np.lexsort((gas, *columns[::-1], -log_rate))
    _, first = np.unique(np.stack(columns, axis=1)[order], axis=0, return_index=True)
    best = order[np.sort(first)]
    return np.asarray(best[np.argsort(-log_rate[best], kind="stable")], dtype=np.int64)
