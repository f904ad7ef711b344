"""Whether the best strategy is at the edge of the search space, and predictions beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model.columns import Array, Columns
from autotune.dimension_words import (
    RATE_WORDS,
    capitalised,
    percent,
    value_words,
    with_values_words,
)
from autotune.explanation.rates import interval
from autotune.explanation.steps import Surroundings, at_batch, with_values
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.search.layouts import log_work
from search_spaces.dimensions import ACCUMULATION, TABLE, Scalar
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

End = Literal["least", "greatest", "only"]

UPWARD: Mapping[End, tuple[bool, ...]] = {
    "least": (False,),
    "greatest": (True,),
    "only": (False, True),
}
"""Directions in which further values lie."""

NUMBERED = tuple(d.name for d in TABLE if d.is_counted)
CHOSEN = tuple(d.name for d in TABLE if d.part == "switch")
"""Unordered dimensions: if only one value is allowed, all others lie beyond."""

STEPS = 2
TOGETHER = 5
"""Maximum number of edges crossed together: with two steps beyond each there are 243
combinations."""

DRAWS = 1000

WORTH = 0.02
"""Minimum gain in the rate that a sentence mentions."""

TWICE = 1.95
"""Ratio above which a sentence says "N times" instead of a percentage."""


@dataclass(frozen=True, kw_only=True)
class BeyondEdge:
    """A strategy outside the space, next to its best.

    Attributes:
        changes: dimension -> value outside the space.
        strategy: the best with these values, at the same global batch unless the accumulation is
            among the changes.
        relative: its predicted rate over the best's; `low` and `high` bound the 80 % interval.
        fit_probability: probability that it fits with the headroom.
    """

    changes: Mapping[str, Scalar]
    strategy: Strategy
    global_batch_size: int
    relative: float
    low: float
    high: float
    fit_probability: float
    sentence: str

    @property
    def worth_trying(self) -> bool:
        """Whether it probably fits and is predicted to be noticeably better."""
        return self.fit_probability >= LIKELY_TO_FIT and self.relative >= 1.0 + WORTH


@dataclass(frozen=True, kw_only=True)
class SpaceEdge:
    """A dimension in which the best has the least, the greatest or the only allowed value.

    Attributes:
        beyond: one and two steps further, nearest first; in both directions from an only value. At
            least one is legal.
    """

    dimension: str
    value: Scalar
    end: End
    beyond: tuple[BeyondEdge, ...]
    sentence: str

    @property
    def promise(self) -> float:
        """The highest ratio to the best's rate that is worth trying; 0 if there is none."""
        return max((each.relative for each in self.beyond if each.worth_trying), default=0.0)


@dataclass(frozen=True, kw_only=True)
class EdgeReport:
    """All edges that the best lies on, most promising first, except those without a legal value
    beyond.

    Attributes:
        together: the most promising strategy beyond several edges at once; None if none is better
            than those beyond one edge.
        sentence: the most important result in words.
    """

    edges: tuple[SpaceEdge, ...]
    together: BeyondEdge | None
    sentence: str


def edges(
    space: SearchSpace,
    calibration: Calibration,
    best: Strategy,
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
    seed: int = 0,
) -> EdgeReport:
    """Return the dimensions in which the best strategy has an extreme value, with predictions just
    beyond.

    More nodes than allowed are predicted only if the objective accounts for them, since more nodes
    are always faster.

    Args:
        calibration: including the campaign's trials.
        headroom_gib: memory that must stay free.
        seed: of the draws for intervals.
    """
    look = _Look(
        space=space,
        calibration=calibration,
        best=best,
        objective=objective,
        headroom_gib=headroom_gib,
        batch=best.global_batch_size(space.machine.gpus_per_node),
        seed=seed,
    )
    found = [look.edge(name, end) for name, end in _ends(space, best)]
    found = [edge for edge in found if edge.beyond]
    found.sort(key=lambda edge: -edge.promise)
    together = look.together(found)
    return EdgeReport(edges=tuple(found), together=together, sentence=_report(found, together))


def _ends(space: SearchSpace, best: Strategy) -> Iterator[tuple[str, End]]:
    """Yield each dimension in which the best has an extreme allowed value, and which extreme; the
    accumulation is left out if the batch determines it."""
    for name in (*NUMBERED, *CHOSEN):
        allowed, own = space.dimensions[name], getattr(best, name)
        if name == ACCUMULATION and space.batch.maximum is not None:
            continue
        if len(allowed) == 1:
            yield name, "only"
        elif name in NUMBERED and own <= min(int(value) for value in allowed):
            yield name, "least"
        elif name in NUMBERED and own >= max(int(value) for value in allowed):
            yield name, "greatest"


@dataclass(frozen=True, kw_only=True, eq=False)
class _Look:
    """Predictions beyond the edges of one space, at the best's global `batch`."""

    space: SearchSpace
    calibration: Calibration
    best: Strategy
    objective: Objective
    headroom_gib: float
    batch: int
    seed: int

    @property
    def _gpus(self) -> int:
        return self.space.machine.gpus_per_node

    @property
    def _around(self) -> Surroundings:
        return Surroundings(
            transformer=self.space.transformer,
            machine=self.space.machine,
            program=self.space.program,
        )

    def edge(self, dimension: str, end: End) -> SpaceEdge:
        value: Scalar = getattr(self.best, dimension)
        beyond = self._predicted(
            [{dimension: each} for each in self._beyond_end(dimension, value, end)]
        )
        allowed = "all that is" if end == "only" else f"the {end}"
        best = _most_promising(beyond)
        tail = best.sentence if best else _nothing(beyond)
        return SpaceEdge(
            dimension=dimension,
            value=value,
            end=end,
            beyond=tuple(beyond),
            sentence=capitalised(f"{value_words(dimension, value)} is {allowed} allowed: {tail}"),
        )

    def _beyond_end(self, dimension: str, value: Scalar, end: End) -> list[Scalar]:
        if dimension in CHOSEN:
            return self._around.others(dimension, value)
        faster_anyway = dimension == "num_nodes" and self.objective == "tokens_per_s"
        return [
            each
            for upward in UPWARD[end]
            if not (upward and faster_anyway)
            for each in self._around.beyond(dimension, value, upward=upward, count=STEPS)
        ]

    def together(self, found: Sequence[SpaceEdge]) -> BeyondEdge | None:
        """Return the best combination of values beyond several edges, limited to the most promising
        edges."""
        choices: dict[str, list[Scalar | None]] = {}
        for edge in [each for each in found if each.end != "only"][:TOGETHER]:
            choices.setdefault(edge.dimension, [None]).extend(
                value for each in edge.beyond for value in each.changes.values()
            )
        combined = [
            {name: value for name, value in zip(choices, values, strict=True) if value is not None}
            for values in product(*choices.values())
        ]
        best = _most_promising(self._predicted([each for each in combined if len(each) > 1]))
        alone = max((edge.promise for edge in found), default=0.0)
        return best if best and best.relative >= (1.0 + WORTH) * alone else None

    def _strategy(self, changes: Mapping[str, Scalar]) -> Strategy | None:
        """Return the best strategy with these values; None if the batch is not divisible."""
        batch = self.batch
        if ACCUMULATION in changes:
            own = self.best.gradient_accumulation_steps
            batch = batch * int(changes[ACCUMULATION]) // own
        return at_batch(with_values(self.best, changes), batch, self._gpus)

    def _predicted(self, changes: Sequence[Mapping[str, Scalar]]) -> list[BeyondEdge]:
        """Return the prediction for each set of values that makes a legal strategy."""
        made = [(each, strategy) for each in changes if (strategy := self._strategy(each))]
        legal = set(self._around.legal([strategy for _, strategy in made]))
        made = [(each, strategy) for each, strategy in made if strategy in legal]
        if not made:
            return []
        strategies = [self.best, *(strategy for _, strategy in made)]
        lattice = Lattice.of(strategies, gpus_per_node=self._gpus)
        columns = Columns.of(self.space.transformer, lattice)
        leads = self._leads(lattice, columns)
        fits = self.calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
        return [
            self._beyond(each, strategy, leads[:, row], float(fits[row]))
            for row, (each, strategy) in enumerate(made, start=1)
        ]

    def _leads(self, lattice: Lattice, columns: Columns) -> Array:
        """Return the logarithm of each rate over the best's, shape (1 + draws, n): the mean
        first."""
        work = log_work(
            lattice, self.space.transformer, self.space.machine, objective=self.objective
        )
        time = self.calibration.time
        mean, _, _ = time.predict(columns)
        draws = time.draws(columns, count=DRAWS, generator=np.random.default_rng(self.seed))
        rates = work - np.vstack([mean, draws])
        return np.asarray(rates - rates[:, :1])

    def _beyond(
        self, changes: Mapping[str, Scalar], strategy: Strategy, leads: Array, fits: float
    ) -> BeyondEdge:
        ends = interval(leads[:1], leads[1:, np.newaxis])
        relative, low, high = (float(np.exp(each[0])) for each in (leads, *ends))
        batch = strategy.global_batch_size(self._gpus)
        named = {name: value for name, value in changes.items() if name != ACCUMULATION}
        other_batch = batch != self.batch or not named
        words = with_values_words(named, *([f"batch {batch}"] if other_batch else []))
        if relative >= TWICE:
            rate = RATE_WORDS[self.objective]
            gain = f"{relative:.1f} times {rate} is predicted ({low:.1f} to {high:.1f})"
        elif relative >= 1.0:
            between = f"{round(100.0 * (low - 1.0))} to {round(100.0 * (high - 1.0))} %"
            gain = f"{percent(relative - 1.0)} more is predicted ({between})"
        else:
            gain = f"{percent(relative - 1.0)} less is predicted"
        doubt = "" if fits >= LIKELY_TO_FIT else ", and it would probably not fit"
        return BeyondEdge(
            changes=changes,
            strategy=strategy,
            global_batch_size=batch,
            relative=relative,
            low=low,
            high=high,
            fit_probability=fits,
            sentence=f"{words}, {gain}{doubt}",
        )


def _most_promising(beyond: Sequence[BeyondEdge]) -> BeyondEdge | None:
    worth = [each for each in beyond if each.worth_trying]
    return max(worth, key=lambda each: each.relative, default=None)


def _nothing(beyond: Sequence[BeyondEdge]) -> str:
    """Return why nothing beyond an edge is worth trying."""
    if any(each.relative >= 1.0 + WORTH for each in beyond):
        return "faster values would probably not fit"
    return "no value beyond it is predicted to be better"


def _report(found: Sequence[SpaceEdge], together: BeyondEdge | None) -> str:
    if not found:
        return "The best is not at an edge of the search space"
    promising = [edge for edge in found if edge.promise]
    if not promising and together is None:
        return (
            "The best is at the edge of the search space; nothing beyond it that fits is "
            "predicted to be better"
        )
    if together is not None:
        crossed = [edge for edge in found if edge.dimension in together.changes]
        on = " and ".join(value_words(edge.dimension, edge.value) for edge in crossed)
        return f"The best is at the edge of the search space ({on}): {together.sentence}"
    return f"The best is at the edge of the search space: {_lowered(promising[0].sentence)}"


def _lowered(sentence: str) -> str:
    """Return a sentence as it continues after a colon; names of dimensions keep their capitals."""
    word = sentence.split(" ", 1)[0]
    return sentence if word.isupper() or word == "ZeRO" else sentence[:1].lower() + sentence[1:]
