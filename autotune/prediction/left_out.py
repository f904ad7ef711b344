"""Strategies outside a space that are predicted to be better than its best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.objectives import BETTER
from autotune.resolution import strategy_shape
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import LeftOut
from autotune.search.layouts import Layouts
from search_spaces.batch import GlobalBatch
from search_spaces.choices import AUTO, DimensionChoice, automatic, unsaid
from search_spaces.dimensions import ACCUMULATION, IN_LINE, MEMORY_FOR_TIME, TABLE, Scalar
from search_spaces.errors import InvalidInputs
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

LEAST_GAIN = 0.02
"""Minimum predicted gain that is reported; smaller ones are within the cost model's noise."""

RELAXED = tuple(
    d.name for d in TABLE if d.part not in ("nodes", "numbers") and d.name != ACCUMULATION
)
"""Dimensions that may take other values without changing the question. Nodes and precision stay
fixed; the accumulation follows from the batch, which is kept."""

TOGETHER_UP_TO = tuple(d.name for d in reversed(TABLE) if d.name in RELAXED and d.is_counted)
"""Dimensions to keep fixed, one after another, while relaxing all others together gives too large a
space."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """The most promising strategy of a space that fits, with its predicted objective."""

    strategy: Strategy
    rate: float


def left_out(
    space: SearchSpace, *, objective: Objective, headroom_gib: float = 0.0
) -> list[LeftOut]:
    """Return strategies outside `space` that are predicted to be at least 2 % better than its best,
    best first.

    Each dimension is relaxed alone, to its values in an automatic space and its own; then all
    together, reported if that is better still. Model, machine, program, nodes, precision and global
    batch are those of the space's best strategy. Strategies that do not fit with the headroom are
    ignored.
    """
    best = most_promising(space, objective=objective, headroom_gib=headroom_gib)
    if best is None:
        return []
    relaxation = _Relaxation(space=space, best=best, objective=objective, headroom_gib=headroom_gib)
    wider = relaxation.wider()
    freed = relaxation.relaxed({})
    found = [relaxation.answer(freed, ACCUMULATION)]
    # A gain that more accumulation alone would give is not due to another dimension.
    level = max(best.rate, freed.rate if freed else 0.0)
    for dimension, values in wider.items():
        better = relaxation.relaxed({dimension: values})
        if better and better.rate >= (1.0 + LEAST_GAIN) * level:
            found.append(relaxation.answer(better, dimension))
    alone = [answer for answer in found if answer is not None]
    together = relaxation.together(wider)
    if together and together.gain > max((answer.gain for answer in alone), default=0.0):
        alone.append(together)
    return sorted(alone, key=lambda answer: -answer.gain)


def most_promising(
    space: SearchSpace, *, objective: Objective, headroom_gib: float = 0.0
) -> Candidate | None:
    """Return the best strategy of a space by prediction; None if nothing is legal or nothing
    fits."""
    if len(space.lattice()) == 0:
        return None
    layouts = Layouts.of(space, objective=objective)
    limit = min(layouts.memory_limit_gib, space.machine.memory_gib - headroom_gib)
    fitting = np.flatnonzero(layouts.memory_gib <= limit)
    if len(fitting) == 0:
        return None
    row = int(fitting[0])  # highest rate first
    return Candidate(
        strategy=layouts.lattice.strategy(row), rate=float(np.exp(layouts.log_rate[row]))
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Relaxation:
    """A search for strategies outside `space` that are better than its best."""

    space: SearchSpace
    best: Candidate
    objective: Objective
    headroom_gib: float

    def wider(self) -> Mapping[str, tuple[Scalar, ...]]:
        """Return, for each dimension with more values in an automatic space, those values."""
        space, own = self.space, self.space.dimensions
        flash = {"flash_attention": (True,)}
        others = {
            name: automatic(
                name, space.transformer, space.machine, nodes=space.nodes, program=space.program
            )
            for name in RELAXED
            if name not in {*MEMORY_FOR_TIME, *flash}
        }
        more = unsaid(
            {**own, **others},
            space.transformer,
            space.machine,
            nodes=space.nodes,
            program=space.program,
        )
        wider = {**others, **more, **flash}
        return {
            name: tuple(dict.fromkeys((*own[name], *wider[name])))
            for name in RELAXED
            if set(wider.get(name, ())) - set(own[name])
        }

    def relaxed(self, wider: Mapping[str, tuple[Scalar, ...]]) -> Candidate | None:
        """Return the best strategy with other values of some dimensions, at the same nodes and
        batch; None if that space is too large or empty."""
        space, strategy = self.space, self.best.strategy
        choices: dict[str, DimensionChoice] = {
            **{name: list(values) for name, values in {**space.dimensions, **wider}.items()},
            "num_nodes": strategy.num_nodes,
            ACCUMULATION: AUTO,
        }
        try:
            relaxed = SearchSpace.build(
                space.transformer,
                space.machine,
                nodes=space.nodes,
                choices=choices,
                batch=GlobalBatch.of(strategy.global_batch_size(space.machine.gpus_per_node)),
                program=space.program,
            )
        except InvalidInputs:
            return None
        return most_promising(relaxed, objective=self.objective, headroom_gib=self.headroom_gib)

    def together(self, wider: Mapping[str, tuple[Scalar, ...]]) -> LeftOut | None:
        """Return the best strategy with all dimensions relaxed at once, or as many as the size
        limit allows."""
        relaxed = dict(wider)
        for dropped in ("", *TOGETHER_UP_TO):
            relaxed.pop(dropped, None)
            if better := self.relaxed(relaxed):
                return self.answer(better, None)
        return None

    def answer(self, better: Candidate | None, dimension: str | None) -> LeftOut | None:
        """Return the answer for a better strategy; None if it is in the space or hardly better.

        Args:
            dimension: the relaxed one; None for all together.
        """
        best_rate = self.best.rate
        if better is None or better.rate < (1.0 + LEAST_GAIN) * best_rate:
            return None
        strategy, gain = better.strategy, better.rate / best_rate - 1.0
        values = {name: getattr(strategy, name) for name in (*RELAXED, ACCUMULATION)}
        named = [
            name
            for name in ([dimension] if dimension else RELAXED)
            if values[name] not in self.space.dimensions[name]
        ]
        if not named:
            return None
        said = ", ".join(f"{name}={_written(values[name])}" for name in named)
        cut = (d for d in IN_LINE if d.part in ("layout", "batch") and d.name != ACCUMULATION)
        layout = ", ".join(filter(None, (d.brief(values[d.name]) for d in cut)))
        head = said if dimension else f"all together, {said}"
        lacks = "is" if len(named) == 1 else "are"
        return LeftOut(
            dimensions=named,
            strategy=strategy_shape(strategy),
            gain=gain,
            sentence=f"{head} with {layout} {lacks} predicted {gain:.0%} {BETTER[self.objective]} "
            f"at the same global batch and {lacks} not in the space".replace("%", " %"),
        )


def _written(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
