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
from autotune.explanation.steps import Surroundings, changed
from autotune.resolution import strategy_shape
from autotune.schemas.predictions import LIKELY_TO_FIT, MemoryChange
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
class MemoryBudget:
    """Whether a strategy fits into the memory of the fullest GPU.

    Attributes:
        fit_probability: probability that it fits with the headroom.
        changes: ways to make it fit with the fewest dimensions changed, fastest first; empty if it
            fits, or if changing three dimensions is not enough.
        sentence: where its memory goes, whether it fits, and the first of the changes.
    """

    fit_probability: float
    changes: list[MemoryChange]
    sentence: str

    @property
    def fits(self) -> bool:
        return self.fit_probability >= LIKELY_TO_FIT


def memory_budget(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    headroom_gib: float = 0.0,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> MemoryBudget:
    """Return whether a strategy fits, and what would make it fit.

    Args:
        headroom_gib: memory that must stay free.
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
        around=Surroundings(transformer=transformer, machine=machine, program=program),
    )
    changes = [] if fits >= LIKELY_TO_FIT else search.changes()[:SHOWN]
    parts = {name: float(part[0]) for name, part in forecast.memory_parts_gib.items()}
    most = sorted(parts, key=lambda name: -parts[name])[:SHOWN_PARTS]
    of = " and ".join(f"{gibibytes(parts[name])} {MEMORY_WORDS[name]}" for name in most)
    verdict = f"it fits with a probability of {percent(fits)}" if fits < SURE else "it fits"
    if fits < 1.0 - SURE:
        verdict = "it does not fit"
    sentence = (
        f"It needs {gibibytes(float(forecast.memory_gib[0]))} of {machine.memory_gib:.3g}, of "
        f"which {calibration.parameters.usable_gib(machine):.3g} can be used ({of}): {verdict}"
    )
    return MemoryBudget(
        fit_probability=fits,
        changes=changes,
        sentence=f"{sentence}. {changes[0].sentence}" if changes else sentence,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """Search for the smallest changes that make one strategy fit."""

    calibration: Calibration
    transformer: Transformer
    strategy: Strategy
    headroom_gib: float
    around: Surroundings

    @property
    def _gpus(self) -> int:
        return self.calibration.machine.gpus_per_node

    def changes(self) -> list[MemoryChange]:
        """Return changes that probably fit with the fewest dimensions changed, fastest first: one
        per set of dimensions, with the nearest value of a single one, and the fastest of several.
        """
        seen = {self.strategy}
        frontier = [self.strategy]
        for _ in range(MOST_CHANGES):
            reached = [other for each in frontier for other in self._next_to(each)]
            fresh = [other for other in dict.fromkeys(reached) if other not in seen]
            seen.update(fresh)
            legal = self.around.legal(fresh)
            if not legal:
                return []
            lattice = Lattice.of(legal, gpus_per_node=self._gpus)
            columns = Columns.of(self.transformer, lattice)
            fits = self.calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
            likely = np.flatnonzero(fits >= LIKELY_TO_FIT)
            if len(likely):
                return _chosen(
                    self._changes_of([legal[row] for row in likely.tolist()], fits[likely])
                )
            leanest = np.argsort(self.calibration.memory.mean(columns), kind="stable")
            frontier = [legal[row] for row in leanest[:MOST_FRONTIER].tolist()]
        return []

    def _next_to(self, strategy: Strategy) -> Iterator[Strategy]:
        for dimension in CHANGED:
            own = getattr(self.strategy, dimension)
            if getattr(strategy, dimension) != own:
                continue  # already changed
            for value in self.around.others(dimension, own):
                yield changed(strategy, dimension, value, gpus_per_node=self._gpus)

    def _changes_of(self, strategies: Sequence[Strategy], fits: Array) -> list[MemoryChange]:
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
                MemoryChange(
                    changes=changes,
                    strategy=strategy_shape(strategy),
                    global_batch_size=batch,
                    memory_gib=gib,
                    fit_probability=float(fits[row - 1]),
                    iteration_time_s=float(forecast.iteration_time_s[row]),
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


def _chosen(told: Sequence[MemoryChange]) -> list[MemoryChange]:
    """Return one change per set of dimensions, fastest first. The input has the nearest values of a
    dimension first."""
    alone = len(told[0].changes) == 1
    chosen: dict[tuple[str, ...], MemoryChange] = {}
    for each in told if alone else sorted(told, key=lambda each: -each.relative):
        chosen.setdefault(tuple(each.changes), each)
    return sorted(chosen.values(), key=lambda each: -each.relative)
