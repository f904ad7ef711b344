"""Memory calculator: where the memory of a strategy goes, whether it fits, and what would make it
fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns
from autotune.dimension_words import (
    capitalised,
    gibibytes,
    percent,
    with_values_words,
)
from autotune.explanation.parts import MEMORY_WORDS
from autotune.explanation.steps import EVEN, Surroundings, changed
from search_spaces.dimensions import ACCUMULATION, TABLE, Scalar
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

CHANGED = tuple(d.name for d in TABLE if d.part != "numbers" and d.name != ACCUMULATION)
"""Dimensions that may change. Precision stays fixed, and the accumulation follows from the
batch."""

MOST_CHANGES = 3
"""Maximum number of dimensions changed together."""

MOST_FRONTIER = 40
"""Number of strategies, lowest memory first, that are changed in one more dimension if none fits
yet."""

HARDLY = 0.01
"""Minimum difference in rate that a sentence mentions."""

SURE = 0.99
"""Probability above which a sentence omits it."""

SHOWN_PARTS = 2

SHOWN = 8
"""Maximum number of changes in the report."""


@dataclass(frozen=True, kw_only=True)
class FittingChange:
    """A change that makes a strategy fit.

    Attributes:
        changes: dimension -> new value.
        strategy: the changed strategy, at the same global batch if that is divisible.
        node_seconds_per_token: predicted; changes are sorted by it.
        relative: rate per node over that of the unchanged strategy, assuming that it had the
            memory.
    """

    changes: Mapping[str, Scalar]
    strategy: Strategy
    global_batch_size: int
    memory_gib: float
    fit_probability: float
    iteration_time_s: float
    node_seconds_per_token: float
    relative: float
    sentence: str


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """The memory of the fullest GPU.

    Attributes:
        memory_gib: predicted peak, the sum of `memory_parts_gib`, which is keyed by MEMORY_WORDS;
            `low` and `high` bound its 80 % interval.
        memory_limit_gib: usable part of a GPU's `gpu_memory_gib`.
        fit_probability: probability that the strategy fits with the headroom.
        changes: ways to make it fit with the fewest dimensions changed, fastest first; empty if it
            fits, or if changing three dimensions is not enough.
    """

    strategy: Strategy
    memory_gib: float
    memory_low_gib: float
    memory_high_gib: float
    memory_parts_gib: Mapping[str, float]
    memory_limit_gib: float
    gpu_memory_gib: float
    fit_probability: float
    changes: tuple[FittingChange, ...]
    sentence: str

    @property
    def fits(self) -> bool:
        return self.fit_probability >= EVEN


def memory_budget(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    headroom_gib: float = 0.0,
    most_nodes: int | None = None,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> MemoryBudget:
    """Return where the memory of a strategy goes, and what would make it fit.

    Args:
        headroom_gib: memory that must stay free.
        most_nodes: maximum number of nodes after a change; the machine's by default.
    """
    machine = calibration.machine
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    fits = float(
        calibration.fit_probability(Columns.of(transformer, lattice), headroom_gib=headroom_gib)[0]
    )
    search = _Search(
        calibration=calibration,
        transformer=transformer,
        strategy=strategy,
        headroom_gib=headroom_gib,
        most_nodes=most_nodes or machine.max_nodes,
        program=program,
    )
    changes = [] if fits >= EVEN else search.changes()[:SHOWN]
    parts = {name: float(part[0]) for name, part in forecast.memory_parts_gib.items()}
    gib = float(forecast.memory_gib[0])
    limit = calibration.parameters.usable_gib(machine)
    return MemoryBudget(
        strategy=strategy,
        memory_gib=gib,
        memory_low_gib=float(forecast.memory_low_gib[0]),
        memory_high_gib=float(forecast.memory_high_gib[0]),
        memory_parts_gib=parts,
        memory_limit_gib=limit,
        gpu_memory_gib=machine.memory_gib,
        fit_probability=fits,
        changes=tuple(changes),
        sentence=_sentence(gib, limit, machine.memory_gib, parts, changes, fits=fits),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """Search for the smallest changes that make one strategy fit."""

    calibration: Calibration
    transformer: Transformer
    strategy: Strategy
    headroom_gib: float
    most_nodes: int
    program: ProgramCapabilities

    @property
    def _gpus(self) -> int:
        return self.calibration.machine.gpus_per_node

    def changes(self) -> list[FittingChange]:
        """Return changes that probably fit with the fewest dimensions changed, fastest first: one
        per set of dimensions, with the nearest value of a single one, and the fastest of several.
        """
        seen = {self.strategy}
        frontier = [self.strategy]
        for _ in range(MOST_CHANGES):
            reached = [other for each in frontier for other in self._next_to(each)]
            fresh = [other for other in dict.fromkeys(reached) if other not in seen]
            seen.update(fresh)
            legal = self._around.legal(fresh)
            if not legal:
                return []
            columns = self._columns(legal)
            fits = self.calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
            likely = np.flatnonzero(fits >= EVEN)
            if len(likely):
                return _chosen(
                    self._changes_of([legal[row] for row in likely.tolist()], fits[likely])
                )
            leanest = np.argsort(self.calibration.memory.mean(columns), kind="stable")
            frontier = [legal[row] for row in leanest[:MOST_FRONTIER].tolist()]
        return []

    @property
    def _around(self) -> Surroundings:
        return Surroundings(
            transformer=self.transformer, machine=self.calibration.machine, program=self.program
        )

    def _next_to(self, strategy: Strategy) -> Iterator[Strategy]:
        for dimension in CHANGED:
            own = getattr(self.strategy, dimension)
            if getattr(strategy, dimension) != own:
                continue  # already changed
            for value in self._around.others(dimension, own):
                if dimension != "num_nodes" or int(value) <= self.most_nodes:
                    yield changed(strategy, dimension, value, gpus_per_node=self._gpus)

    def _columns(self, strategies: Sequence[Strategy]) -> Columns:
        lattice = Lattice.of(strategies, gpus_per_node=self._gpus)
        return Columns.of(self.transformer, lattice)

    def _changes_of(self, strategies: Sequence[Strategy], fits: Array) -> list[FittingChange]:
        every = [self.strategy, *strategies]
        lattice = Lattice.of(every, gpus_per_node=self._gpus)
        forecast = self.calibration.forecast(self.transformer, lattice)
        tokens = lattice.global_batch_size * float(self.transformer.seq_length)
        spent = forecast.iteration_time_s * lattice["num_nodes"] / tokens
        told = []
        for row, strategy in enumerate(strategies, start=1):
            changes = {
                name: getattr(strategy, name)
                for name in CHANGED
                if getattr(strategy, name) != getattr(self.strategy, name)
            }
            relative, gib = float(spent[0] / spent[row]), float(forecast.memory_gib[row])
            batch = int(lattice.global_batch_size[row])
            told.append(
                FittingChange(
                    changes=changes,
                    strategy=strategy,
                    global_batch_size=batch,
                    memory_gib=gib,
                    fit_probability=float(fits[row - 1]),
                    iteration_time_s=float(forecast.iteration_time_s[row]),
                    node_seconds_per_token=float(spent[row]),
                    relative=relative,
                    sentence=self._sentence(changes, batch, gib, relative),
                )
            )
        return told

    def _sentence(
        self, changes: Mapping[str, Scalar], batch: int, gib: float, relative: float
    ) -> str:
        other_batch = batch != self.strategy.global_batch_size(self._gpus)
        words = with_values_words(changes, *([f"batch {batch}"] if other_batch else []))
        if abs(relative - 1.0) < HARDLY:
            pace = "about as fast"
        else:
            pace = f"{percent(relative - 1.0)} {'faster' if relative > 1.0 else 'slower'}"
        needs = f"{words} it needs {gibibytes(gib)} and is {pace} for each node"
        return capitalised(needs)


def _chosen(told: Sequence[FittingChange]) -> list[FittingChange]:
    """Return one change per set of dimensions, fastest first. The input has the nearest values of a
    dimension first."""
    alone = len(told[0].changes) == 1
    order = told if alone else sorted(told, key=lambda each: each.node_seconds_per_token)
    chosen: dict[tuple[str, ...], FittingChange] = {}
    for each in order:
        chosen.setdefault(tuple(each.changes), each)
    return sorted(chosen.values(), key=lambda each: each.node_seconds_per_token)


def _sentence(
    gib: float,
    limit: float,
    whole: float,
    parts: Mapping[str, float],
    changes: Sequence[FittingChange],
    *,
    fits: float,
) -> str:
    most = sorted(parts, key=lambda name: -parts[name])[:SHOWN_PARTS]
    of = " and ".join(f"{gibibytes(parts[name])} {MEMORY_WORDS[name]}" for name in most)
    verdict = f"it fits with a probability of {percent(fits)}" if fits < SURE else "it fits"
    if fits < 1.0 - SURE:
        verdict = "it does not fit"
    needs = (
        f"It needs {gibibytes(gib)} of {whole:.3g}, of which {limit:.3g} can be used ({of}): "
        f"{verdict}"
    )
    return f"{needs}. {changes[0].sentence}" if changes else needs
