"""A table of strategies, one NumPy column for each dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search_spaces.dimensions import DIMENSIONS, Scalar
from search_spaces.groups import ParallelGroups
from search_spaces.strategy import Strategy, strategy_with

Mask = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """Strategies as columns of equal length, so that rules and costs take all of them at once.

    Attributes:
        columns: dimension name -> array of shape (n,); integers, booleans, or short strings, and
            objects for a dimension of the trainer's own, None where a strategy lacks it. In the
            open grid of a space each stands along an axis of its own instead: rules judge it as
            well, and nothing else works on it.
        gpus_per_node: of the machine that they are laid out on.
    """

    columns: Mapping[str, NDArray[Any]]
    gpus_per_node: int

    @classmethod
    def of(cls, strategies: Sequence[Strategy], *, gpus_per_node: int) -> Lattice:
        columns = {name: np.array([getattr(s, name) for s in strategies]) for name in DIMENSIONS}
        for name in dict.fromkeys(name for s in strategies for name, _ in s.settings):
            columns[name] = settings_column([s.value(name) for s in strategies])
        return cls(columns=columns, gpus_per_node=gpus_per_node)

    @classmethod
    def joined(cls, lattices: Sequence[Lattice]) -> Lattice:
        """Return the strategies of one or more lattices of the same dimensions, in their order."""
        if len(lattices) == 1:
            return lattices[0]
        columns = {
            name: np.concatenate([each.columns[name] for each in lattices])
            for name in lattices[0].columns
        }
        return cls(columns=columns, gpus_per_node=lattices[0].gpus_per_node)

    def __len__(self) -> int:
        return len(self.columns["tensor_parallel"])

    @property
    def shape(self) -> tuple[int, ...]:
        return np.broadcast_shapes(*(column.shape for column in self.columns.values()))

    def __getitem__(self, dimension: str) -> NDArray[Any]:
        return self.columns[dimension]

    def __iter__(self) -> Iterator[Strategy]:
        return (self.strategy(row) for row in range(len(self)))

    @cached_property
    def settings(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in DIMENSIONS)

    def shaped(self, mask: Mask) -> Mask:
        if len(self.shape) == 1:
            return np.broadcast_to(mask, self.shape)
        return mask.reshape((1,) * (len(self.shape) - mask.ndim) + mask.shape)

    def strategy(self, row: int | tuple[int, ...]) -> Strategy:
        """Return the strategy of a row, or of a place along each axis of an open grid."""
        places = row if isinstance(row, tuple) else (row,)

        def of(column: NDArray[Any]) -> Any:
            along = zip(places, column.shape, strict=True)
            return column[tuple([place if size > 1 else 0] for place, size in along)].tolist()[0]

        return strategy_with({name: of(column) for name, column in self.columns.items()})

    def distinct(self, dimensions: Sequence[str]) -> Iterator[Strategy]:
        combinations = zip(*(self[name].tolist() for name in dimensions), strict=True)
        first = {values: row for row, values in reversed(list(enumerate(combinations)))}
        return (self.strategy(row) for row in sorted(first.values()))

    def take(self, rows: Mask | NDArray[np.integer[Any]]) -> Lattice:
        chosen = {name: column[rows] for name, column in self.columns.items()}
        return Lattice(columns=chosen, gpus_per_node=self.gpus_per_node)

    @cached_property
    def world_size(self) -> NDArray[np.int64]:
        return np.asarray(self["num_nodes"] * self.gpus_per_node, dtype=np.int64)

    @cached_property
    def groups(self) -> ParallelGroups:
        return ParallelGroups.of(self.__getitem__, world_size=self.world_size)

    @property
    def model_parallel(self) -> NDArray[np.int64]:
        return np.asarray(self.groups.model_parallel)

    @property
    def data_parallel(self) -> NDArray[np.int64]:
        return np.asarray(self.groups.data_parallel)

    @cached_property
    def uneven_world(self) -> Mask:
        return np.asarray(self.groups.left_over != 0)

    @cached_property
    def global_batch_size(self) -> NDArray[np.int64]:
        samples = self["micro_batch_size"] * self["gradient_accumulation_steps"]
        return np.asarray(samples * self.data_parallel, dtype=np.int64)


def settings_column(values: Sequence[Scalar | None]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
