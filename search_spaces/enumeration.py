"""Enumeration: which points of a grid are legal, without a row for each point.

The dimensions stand in an open grid, each along an axis of its own, so that a rule costs no more
than the values of the dimensions that it looks at. The tuples of the dimensions that divide GPUs
come first. Those that are legal are crossed with the two dimensions of the batch, and what is legal
of that with all other values: only this takes memory. A large grid is enumerated in parts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from search_spaces.batch import GlobalBatch
from search_spaces.dimensions import ACCUMULATION, DIMENSIONS, DIVIDING, OF_EXPERTS, Scalar
from search_spaces.lattice import Lattice, Mask, settings_column
from search_spaces.program import ProgramCapabilities
from search_spaces.rule import Severity
from search_spaces.transformer import Transformer

CUTTING = (*DIVIDING, *OF_EXPERTS, "num_nodes", "sequence_parallel")
"""The dimensions that decide how GPUs are divided, and what may go only with tensor parallelism."""
BATCH = ("micro_batch_size", ACCUMULATION)

COMBINED = (
    (*CUTTING, *BATCH),
    ("pipeline_parallel", "virtual_stages"),
    (
        "precision",
        "sequence_parallel",
        "tensor_parallel",
        "context_parallel",
        "micro_batch_size",
        "expert_tensor_parallel",
    ),
)
"""The dimensions that are crossed before anything is known of them, and those that the widest rules
look at: an array has an element for each combination of their values."""
MOST_DIVISIONS = 2_000_000
"""Combinations of CUTTING: counting the points of a space takes about 40 ns for each."""
MOST_COMBINATIONS = 64_000_000
"""Of COMBINED: an enumeration takes two or three seconds then."""
MOST_AT_ONCE = 1 << 20
"""Of COMBINED in a part of a grid: some megabytes for each rule."""

Judge: TypeAlias = Callable[[Lattice, Severity], Mapping[str, Mask]]
"""From strategies and a severity to rule -> mask, true where it refuses (or warns)."""


@dataclass(frozen=True, kw_only=True)
class Enumeration:
    """Legal strategies of a space, and how many points each rule removed.

    Attributes:
        raw: points of the grid of all dimensions.
        removed: rule -> raw points that it refuses, most first; one point may break several.
        warned: rule -> legal points that it warns of, most first.
    """

    legal: Lattice
    raw: int
    removed: Mapping[str, int]
    warned: Mapping[str, int]

    @classmethod
    def of_parts(cls, parts: Iterable[Enumeration]) -> Enumeration:
        """Return the enumeration of a grid from those of its parts."""
        each = list(parts)
        removed, warned = Counter[str](), Counter[str]()
        for part in each:
            removed.update(part.removed)
            warned.update(part.warned)
        return cls(
            legal=Lattice.joined([part.legal for part in each]),
            raw=sum(part.raw for part in each),
            removed=_most_first(removed),
            warned=_most_first(warned),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """Every combination of the values of all dimensions, in the order of the values.

    Attributes:
        dimensions: name -> values, along an axis each.
        experts_as_usual: whether of the points only those count whose expert_tensor_parallel is 1
            or tensor_parallel.
        sharded_pipelines: whether points with ZeRO 3 and a pipeline count.

    Where sequence parallelism has both values, those with it and without tensor parallelism do not
    count: they are the same layouts as without it.
    """

    dimensions: Mapping[str, tuple[Scalar, ...]]
    gpus_per_node: int
    experts_as_usual: bool = False
    sharded_pipelines: bool = True

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(len, self.dimensions.values()))

    @property
    def raw(self) -> int:
        return math.prod(self.shape)

    def points(
        self, transformer: Transformer, program: ProgramCapabilities, batch: GlobalBatch
    ) -> int:
        """Return how many points memory has to hold: those whose GPUs can be divided, whose
        sequence parallelism goes with the rest, and whose batch is within the bounds."""
        lattice = self.open(CUTTING)
        groups = lattice.groups
        num_experts = transformer.experts.num_experts if transformer.experts else 1
        left_over = (groups.left_over != 0) | (groups.experts_left_over != 0)
        cut, sequence = lattice["tensor_parallel"] > 1, lattice["sequence_parallel"]
        legal = ~left_over & ~self.left_out(lattice)
        legal = legal & (num_experts % lattice["expert_parallel"] == 0)
        if program.ties_sequence_parallel(transformer):
            legal = legal & (sequence | ~cut)
        replicas = np.broadcast_to(groups.data_parallel, legal.shape)[legal]
        micro_batches, accumulations = map(self.values, BATCH)
        samples = np.sort(np.multiply.outer(micro_batches, accumulations), axis=None)
        different, tuples = np.unique(replicas, return_counts=True)
        below = np.searchsorted(samples, batch.least / different, side="left")
        upto = np.searchsorted(samples, batch.most / different, side="right")
        others: int = self.raw // (math.prod(lattice.shape) * samples.size)
        return others * int(np.sum(tuples * np.maximum(upto - below, 0)))

    def combinations(self, program: ProgramCapabilities) -> int:
        own = ((*DIVIDING, "num_nodes", *refusal.dimensions) for refusal in program.refusals)
        return max(map(self.size, (*COMBINED, *own)))

    def size(self, names: Collection[str]) -> int:
        return math.prod(len(values) for name, values in self.dimensions.items() if name in names)

    def open(self, names: Collection[str] | None = None) -> Lattice:
        """Return the grid of some dimensions, or of all, as columns that broadcast against each
        other, each along its axis."""
        chosen = [name for name in self.dimensions if names is None or name in names]
        axes = np.meshgrid(*map(self.values, chosen), indexing="ij", sparse=True)
        columns = dict(zip(chosen, axes, strict=True))
        return Lattice(columns=columns, gpus_per_node=self.gpus_per_node)

    def thinned(self, most: int) -> Grid:
        """Return a grid of at most so many points, without every other value of its longest
        dimensions."""
        dimensions = dict(self.dimensions)
        while math.prod(map(len, dimensions.values())) > most:
            longest = max(dimensions, key=lambda name: len(dimensions[name]))
            dimensions[longest] = dimensions[longest][::2]
        return replace(self, dimensions=dimensions)

    def whole(self) -> Lattice:
        """Return every point, legal or not."""
        columns = {
            name: np.broadcast_to(column, self.shape).ravel()
            for name, column in self.open().columns.items()
        }
        return Lattice(columns=columns, gpus_per_node=self.gpus_per_node)

    def values(self, name: str) -> NDArray[Any]:
        values = self.dimensions[name]
        return np.array(values) if name in DIMENSIONS else settings_column(values)

    def left_out(self, lattice: Lattice) -> Mask:
        etp, tp = lattice["expert_tensor_parallel"], lattice["tensor_parallel"]
        unusual = (etp != 1) & (etp != tp) & self.experts_as_usual
        twice = False in self.dimensions["sequence_parallel"]
        left_out = unusual | (lattice["sequence_parallel"] & (tp == 1) & twice)
        if self.sharded_pipelines or "zero_stage" not in lattice.columns:
            return np.asarray(left_out)
        sharded = (lattice["zero_stage"] == 3) & (lattice["pipeline_parallel"] > 1)
        return np.asarray(left_out | sharded)

    def parts(self, program: ProgramCapabilities, *, most: int = MOST_AT_ONCE) -> Iterator[Grid]:
        """Yield grids that make up this one, in the order of its points, each of at most so many
        combinations."""
        several = [name for name, values in self.dimensions.items() if len(values) > 1]
        if not several or self.combinations(program) <= most:
            yield self
            return
        values = self.dimensions[several[0]]
        half = len(values) // 2
        for some in (values[:half], values[half:]):
            part = replace(self, dimensions={**self.dimensions, several[0]: some})
            yield from part.parts(program, most=most)

    def enumerate(self, judge: Judge) -> Enumeration:
        """Return the legal points, and which rule removed how many."""
        lattice = self.open()
        refused = judge(lattice, "refuse")
        masks = [self.left_out(lattice), *refused.values()]
        crossing = _Crossing.none(self, masks).with_axes(CUTTING).with_axes(BATCH)
        legal = crossing.legal()
        removed = {name: _count(mask) * (self.raw // mask.size) for name, mask in refused.items()}
        warned = {
            name: _count(legal & crossing.over(mask))
            for name, mask in judge(lattice, "warn").items()
        }
        return Enumeration(
            legal=crossing.lattice(legal),
            raw=self.raw,
            removed=_most_first(removed),
            warned=_most_first(warned),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Crossing:
    """Legal tuples of some dimensions, crossed with all values of the others.

    Attributes:
        crossed, others: axes of the grid, in its order.
        tuples: for each crossed axis the places of the k legal tuples along it, shape (k,).
        masks: what refuses points by the values of the others, too.
    """

    grid: Grid
    crossed: Sequence[int]
    others: Sequence[int]
    tuples: Mapping[int, NDArray[np.int64]]
    masks: Sequence[Mask]

    @classmethod
    def none(cls, grid: Grid, masks: Sequence[Mask]) -> _Crossing:
        return cls(grid=grid, crossed=(), others=range(len(grid.shape)), tuples={}, masks=masks)

    def with_axes(self, names: Collection[str]) -> _Crossing:
        """Return the crossing after that with these dimensions, without what the masks refuse that
        look at no others."""
        added = [axis for axis in self.others if tuple(self.grid.dimensions)[axis] in names]
        others = [axis for axis in self.others if axis not in added]
        later = [mask for mask in self.masks if any(mask.shape[axis] > 1 for axis in others)]
        refused = np.zeros((self._size, *(self.grid.shape[axis] for axis in added)), dtype=np.bool_)
        for mask in self.masks:
            if all(mask is not each for each in later):
                over = self.over(mask)
                refused |= over.reshape(len(over), *(mask.shape[axis] for axis in added))
        which, *places = np.nonzero(~refused)
        tuples = {axis: known[which] for axis, known in self.tuples.items()}
        tuples |= dict(zip(added, places, strict=True))
        crossed = sorted(tuples)
        return _Crossing(grid=self.grid, crossed=crossed, others=others, tuples=tuples, masks=later)

    @property
    def _size(self) -> int:
        return len(next(iter(self.tuples.values()))) if self.tuples else 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._size, *(self.grid.shape[axis] for axis in self.others))

    def over(self, mask: Mask) -> Mask:
        """Return a mask of the open grid so that it broadcasts to `shape`."""
        moved = np.moveaxis(mask, self.crossed, range(len(self.crossed)))
        places = [self.tuples[axis] if mask.shape[axis] > 1 else 0 for axis in self.crossed]
        chosen: Mask = moved[tuple(places)]
        return chosen if any(mask.shape[axis] > 1 for axis in self.crossed) else chosen[np.newaxis]

    def legal(self) -> Mask:
        refused = np.zeros(self.shape, dtype=np.bool_)
        for mask in self.masks:
            refused |= self.over(mask)
        return ~refused

    def lattice(self, legal: Mask) -> Lattice:
        """Return the points of a mask of `shape`, in the order of the grid."""
        rest = np.unravel_index(np.arange(math.prod(self.shape[1:])), self.shape[1:])
        places = dict(zip(self.others, rest, strict=True))
        strides = [math.prod(self.grid.shape[axis + 1 :]) for axis in range(len(self.grid.shape))]
        of_tuples = sum(self.tuples[axis] * strides[axis] for axis in self.crossed)
        of_rest = sum(places[axis] * strides[axis] for axis in self.others)
        which, other = np.divmod(np.flatnonzero(legal), len(places[self.others[0]]))
        order = np.argsort(np.asarray(of_tuples)[which] + np.asarray(of_rest)[other])
        which, other = which[order], other[order]
        columns = {}
        for axis, name in enumerate(self.grid.dimensions):
            values = self.grid.values(name)
            if len(values) == 1:
                columns[name] = np.repeat(values, len(order))
            elif axis in self.crossed:
                columns[name] = values[self.tuples[axis]][which]
            else:
                columns[name] = values[places[axis]][other]
        return Lattice(columns=columns, gpus_per_node=self.grid.gpus_per_node)


def _count(mask: Mask) -> int:
    return int(np.count_nonzero(mask))


def _most_first(counts: Mapping[str, int]) -> dict[str, int]:
    most_first = sorted(counts.items(), key=lambda item: -item[1])
    return {name: count for name, count in most_first if count}
