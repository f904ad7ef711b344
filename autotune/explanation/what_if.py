"""What if a layout had other values: predicted changes of it, the best or the smallest first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns
from autotune.explanation.rates import interval
from autotune.explanation.steps import Surroundings, at_batch, with_values
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import LIKELY_TO_FIT, FieldValue, LayoutChange
from autotune.search.layouts import log_work
from autotune.words.dimensions import RATE_WORDS, capitalised, gibibytes, percent, with_values_words
from search_spaces.choices import AUTO
from search_spaces.dimensions import ACCUMULATION, BY_NAME, DIMENSIONS, TABLE, Scalar
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

CHANGED = tuple(d.name for d in TABLE if d.part != "numbers" and d.name != ACCUMULATION)
"""Dimensions that may change. Precision stays fixed, and the accumulation follows from the
batch."""

MOST_CHANGES = 3
"""Maximum number of dimensions changed together."""

MOST_FRONTIER = 40
"""Number of strategies that are changed in one more dimension."""

ROOM = 0.02
"""Minimum probability of fitting of a strategy that is changed further for a higher rate."""

DRAWS = 1000

WORTH = 0.02
"""Minimum gain in the objective of a change that is worth trying."""

SHOWN = 8
"""Maximum number of changes that are shown."""

HARDLY = 0.01
"""Minimum difference in the objective that a sentence mentions."""

TWICE = 1.95
"""Ratio above which a sentence says "N times" instead of a percentage."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WhatIf:
    """What changes a layout in at most three dimensions would bring, by prediction.

    Attributes:
        start: the layout.
        objective: what `relative` of a change compares.
        headroom_gib: memory that must stay free.
        space: if given, only layouts outside it are returned, and `fields` says how its request
            has to change.
        fixed: dimensions that stay.
        other_batch: whether the global batch may change: where whole micro-batches do not make it,
            and for a higher rate.
        tried: keys of layouts that are no answer.
    """

    start: Strategy
    calibration: Calibration
    transformer: Transformer
    objective: Objective = "tokens_per_s"
    headroom_gib: float = 0.0
    program: ProgramCapabilities = ANY_PROGRAM
    space: SearchSpace | None = None
    fixed: Collection[str] = ()
    other_batch: bool = False
    tried: Collection[tuple[object, ...]] = ()

    @classmethod
    def outside(
        cls, space: SearchSpace, calibration: Calibration, start: Strategy, **options: Any
    ) -> WhatIf:
        """Return the question of layouts outside a space, with its program; the global batch stays
        if the space fixes it."""
        return cls(
            start=start,
            calibration=calibration,
            transformer=space.transformer,
            program=space.program,
            space=space,
            other_batch=space.batch.maximum is None,
            **options,
        )

    @property
    def _around(self) -> Surroundings:
        machine = self.calibration.machine
        return Surroundings(transformer=self.transformer, machine=machine, program=self.program)

    @property
    def _gpus(self) -> int:
        return self.calibration.machine.gpus_per_node

    @property
    def _batch(self) -> int:
        return self.start.global_batch_size(self._gpus)

    def smallest(self) -> list[LayoutChange]:
        """Return the smallest changes with which it fits, in as few dimensions as suffice: the
        nearest value of one, best first, or several, those on the fewest nodes first."""
        for level in self._levels(faster=False):
            if likely := [each for each in level if each.fits >= LIKELY_TO_FIT]:
                if len(self._named(likely[0].strategy)) == 1:  # the nearest value of each
                    return self._changes(sorted(self._one_per_set(likely), key=_gain))
                return self._changes(self._one_per_set(sorted(likely, key=_nodes_then_gain)))
        return []

    def best(self) -> list[LayoutChange]:
        """Return the changes that raise the objective and probably fit, best first: one for each
        set of dimensions, and of several only where they gain more than a part of them."""
        found: list[_Found] = []
        for level in self._levels(faster=True):
            worth = [e for e in level if e.fits >= LIKELY_TO_FIT and e.relative >= 1.0 + WORTH]
            ordered = self._one_per_set(sorted(worth, key=_gain))
            several = bool(ordered) and len(self._named(ordered[0].strategy)) > 1
            before = max((each.relative for each in found), default=1.0)
            better = [each for each in ordered if each.relative >= (1.0 + WORTH) * before]
            found += better[:1] if several else ordered
        return self._changes(self._needed(sorted(found, key=_gain))[:SHOWN])

    def _levels(self, *, faster: bool) -> Iterator[list[_Found]]:
        seen = {self.start}
        frontier = [self.start]
        for _ in range(MOST_CHANGES):
            reached = [other for each in frontier for other in self._next_to(each, faster=faster)]
            fresh = [other for other in dict.fromkeys(reached) if other not in seen]
            seen.update(fresh)
            predicted = self._predicted(self._around.legal(fresh))
            if not predicted:
                return
            yield [each for each in predicted if self._answers(each.strategy)]
            lean = sorted(predicted, key=lambda each: each.memory_gib)
            nearest = lean[:MOST_FRONTIER]
            if faster:  # the fastest that may fit, and the leanest that are faster
                roomy = (each for each in predicted if each.fits >= ROOM)
                leanest = [each for each in lean if each.relative >= 1.0 + WORTH]
                nearest = sorted(roomy, key=_gain)[:MOST_FRONTIER] + leanest[:MOST_FRONTIER]
            frontier = list(dict.fromkeys(each.strategy for each in nearest))

    def _next_to(self, strategy: Strategy, *, faster: bool) -> Iterator[Strategy]:
        around = self._around
        for dimension in CHANGED:
            own = getattr(self.start, dimension)
            if dimension in self.fixed or getattr(strategy, dimension) != own:
                continue
            for value in around.others(dimension, own):
                if other := self._with(strategy, {dimension: value}):
                    yield other
        same_batch = strategy.global_batch_size(self._gpus) == self._batch
        if faster and self.other_batch and same_batch:
            for factor in (2, 4):
                yield strategy.with_accumulation(factor * strategy.gradient_accumulation_steps)

    def _with(self, strategy: Strategy, values: Mapping[str, Scalar]) -> Strategy | None:
        batch = strategy.global_batch_size(self._gpus)
        other = with_values(strategy, values)
        return at_batch(other, batch, self._gpus) or (other if self.other_batch else None)

    def _answers(self, strategy: Strategy) -> bool:
        if strategy.layout_key() in self.tried:
            return False
        space, values = self.space, self._values(strategy)
        return space is None or any(value not in space.dimensions[n] for n, value in values.items())

    def _predicted(self, strategies: Sequence[Strategy]) -> list[_Found]:
        if not strategies:
            return []
        lattice, columns = self._columns([self.start, *strategies])
        fits = self.calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
        time = self.calibration.time.predict(columns)[0]
        rates = self._work(lattice) - time
        relative = np.exp(rates - rates[0])
        memory = self.calibration.needed_gib(columns)
        return [
            _Found(
                strategy=strategy,
                relative=float(relative[row]),
                fits=float(fits[row]),
                memory_gib=float(memory[row]),
                iteration_time_s=float(np.exp(time[row])),
            )
            for row, strategy in enumerate(strategies, start=1)
        ]

    def _columns(self, strategies: Sequence[Strategy]) -> tuple[Lattice, Columns]:
        lattice = Lattice.of(strategies, gpus_per_node=self._gpus)
        return lattice, Columns.of(self.transformer, lattice)

    def _work(self, lattice: Lattice) -> Array:
        machine = self.calibration.machine
        return log_work(lattice, self.transformer, machine, objective=self.objective)

    def _values(self, strategy: Strategy) -> dict[str, Scalar]:
        changes: dict[str, Scalar] = {
            name: getattr(strategy, name)
            for name in CHANGED
            if getattr(strategy, name) != getattr(self.start, name)
        }
        if strategy.global_batch_size(self._gpus) != self._batch:
            changes[ACCUMULATION] = strategy.gradient_accumulation_steps
        return changes

    def _needed(self, found: Sequence[_Found]) -> list[_Found]:
        """Leave out those that gain less than some of their own changes."""
        needed: list[_Found] = []
        sets: list[set[str]] = []
        for each in found:
            names = set(self._values(each.strategy))
            if not any(other < names for other in sets):
                needed.append(each)
                sets.append(names)
        return needed

    def _named(self, strategy: Strategy) -> tuple[str, ...]:
        changes = tuple(self._values(strategy))
        return tuple(name for name in changes if name != ACCUMULATION) or changes

    def _one_per_set(self, found: Sequence[_Found]) -> list[_Found]:
        chosen: dict[tuple[str, ...], _Found] = {}
        for each in found:
            chosen.setdefault(self._named(each.strategy), each)
        return list(chosen.values())

    def _changes(self, found: Sequence[_Found]) -> list[LayoutChange]:
        if not found:
            return []
        lattice, columns = self._columns([self.start, *(each.strategy for each in found)])
        generator = np.random.default_rng(0)
        draws = self._work(lattice) - self.calibration.time.draws(
            columns, count=DRAWS, generator=generator
        )
        leads = draws - draws[:, :1]
        middle = np.log([1.0, *(each.relative for each in found)])
        low, high = np.exp(interval(middle, leads))
        return [
            self._change(each, float(low[row]), float(high[row]))
            for row, each in enumerate(found, start=1)
        ]

    def _change(self, found: _Found, low: float, high: float) -> LayoutChange:
        strategy, changes = found.strategy, self._values(found.strategy)
        batch = strategy.global_batch_size(self._gpus)
        named = {name: value for name, value in changes.items() if name != ACCUMULATION}
        words = with_values_words(named, *([f"batch {batch}"] if batch != self._batch else []))
        pace = _pace(found.relative, low, high, self.objective)
        doubt = "" if found.fits >= LIKELY_TO_FIT else ", which would probably not fit"
        return LayoutChange(
            changes=changes,
            fields=fields_with(self.space, strategy) if self.space else {},
            strategy=strategy,
            global_batch_size=batch,
            iteration_time_s=found.iteration_time_s,
            relative=found.relative,
            relative_low=low,
            relative_high=high,
            memory_gib=found.memory_gib,
            fit_probability=found.fits,
            sentence=f"{capitalised(words)}: {pace}, {gibibytes(found.memory_gib)}{doubt}.",
        )


def left_out(
    space: SearchSpace,
    calibration: Calibration,
    best: Strategy,
    *,
    objective: Objective,
    headroom_gib: float = 0.0,
) -> list[LayoutChange]:
    """Return layouts outside a space that are predicted to be better than its best, best first.
    More nodes are always faster, and so they stay unless the objective counts them."""
    question = WhatIf.outside(
        space,
        calibration,
        best,
        objective=objective,
        headroom_gib=headroom_gib,
        fixed=("num_nodes",) if objective == "tokens_per_s" else (),
    )
    return question.best()


@dataclass(frozen=True, kw_only=True)
class _Found:
    """`relative`: its objective over the start's."""

    strategy: Strategy
    relative: float
    fits: float
    memory_gib: float
    iteration_time_s: float


def _gain(found: _Found) -> float:
    return -found.relative


def _nodes_then_gain(found: _Found) -> tuple[int, float]:
    return found.strategy.num_nodes, -found.relative


def _pace(relative: float, low: float, high: float, objective: Objective) -> str:
    rate = RATE_WORDS[objective]
    if relative >= TWICE:
        return f"{relative:.1f} times {rate} ({low:.1f} to {high:.1f})"
    if abs(relative - 1.0) < HARDLY:
        return f"about the same {rate.removeprefix('the ')}"
    of_tokens = rate.startswith("the tokens")
    more, less = ("more", "fewer") if of_tokens else ("higher", "lower")
    ends = sorted(round(100.0 * abs(end - 1.0)) for end in (low, high))
    between = f" ({ends[0]} to {ends[1]} %)" if (low - 1.0) * (high - 1.0) > 0 else ""
    change = f"{percent(relative - 1.0)} {more if relative > 1.0 else less}"
    return f"{change} {rate.removeprefix('the ')}{between}"


def fields_with(space: SearchSpace, strategy: Strategy) -> dict[str, FieldValue]:
    """Return the request fields to change so that its space includes a strategy: `space.…` with all
    values of each dimension that lacks the strategy's value, and `nodes`."""
    fields: dict[str, FieldValue] = {}
    if strategy.num_nodes > space.nodes:
        fields["nodes"] = strategy.num_nodes
    for name in DIMENSIONS:
        value, allowed = getattr(strategy, name), space.dimensions[name]
        if value in allowed:
            continue
        if name == ACCUMULATION and space.batch.maximum is not None:
            fields[f"space.{name}"] = AUTO
        else:
            values = [*allowed, value]
            counted = BY_NAME[name].is_counted
            fields[f"space.{name}"] = sorted(values, key=int) if counted else values
    return fields
