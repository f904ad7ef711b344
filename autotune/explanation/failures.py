"""Explain a campaign in which every trial failed, and propose changes to the request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from autotune.dimension_words import capitalised, gibibytes, with_values_words
from autotune.failures import cause_of
from autotune.resolution import strategy_shape
from autotune.schemas.choices import Objective
from autotune.schemas.explanations import FailureCause, SuggestedChange
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.search import SearchTrial
from autotune.search.layouts import log_work
from search_spaces.choices import AUTO, DimensionChoice, automatic
from search_spaces.dimensions import ACCUMULATION, BY_NAME, DIMENSIONS, DIVIDING, TABLE, Scalar
from search_spaces.errors import InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

RELAXED = tuple(d.name for d in TABLE if d.spares_memory)
"""Dimensions that trade time for memory, besides the number of nodes; a remedy offers all their
values."""

ROOM = 1.3
"""Ratio of the formulas' memory to the limit up to which a strategy may still fit."""

UNKNOWN = "an unknown cause"

FieldValue = int | str | list[Scalar]
"""Value of a field of a request."""

LOOKED_AT = 500
"""Number of strategies of a changed request whose probability of fitting is computed: those with
the highest predicted rate, and as many with the lowest memory."""


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A changed request of which a strategy probably fits.

    Attributes:
        fields: field of the request -> new value: `nodes`, and dimensions as `space.…` with all
            their values.
        strategy: the fastest predicted strategy that probably fits.
    """

    fields: Mapping[str, FieldValue]
    strategy: Strategy
    memory_gib: float
    fit_probability: float
    sentence: str


def explain_failures(
    space: SearchSpace,
    calibration: Calibration,
    trials: Sequence[SearchTrial],
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
) -> FailureCause | None:
    """Return why no trial succeeded, with remedies, smallest change first, if memory was the cause;
    None if a trial succeeded, or none has ended.

    Args:
        calibration: including these trials.
        headroom_gib: memory that must stay free.
    """
    failed = [trial for trial in trials if trial.state == "failed"]
    if not failed or any(trial.state == "ok" for trial in trials):
        return None
    too_large = [_intended_strategy(trial) for trial in failed if trial.out_of_memory]
    causes = _causes(trial.cause or UNKNOWN for trial in failed if not trial.out_of_memory)
    need = _need(space, calibration, too_large)
    remedies: list[Remedy] = []
    if len(too_large) * 2 >= len(failed):
        remedies = remedies_of(
            space,
            calibration,
            objective=objective,
            headroom_gib=headroom_gib,
            tried=frozenset(_intended_strategy(trial).layout_key() for trial in trials),
        )
    sentence = _sentence(len(failed), causes, need, space.machine.memory_gib, remedies)
    return FailureCause(
        sentence=f"{sentence}.",
        need_low_gib=need[0] if need else None,
        need_high_gib=need[-1] if need else None,
        suggestions=[
            SuggestedChange(
                fields=dict(remedy.fields),
                strategy=strategy_shape(remedy.strategy),
                fit_probability=remedy.fit_probability,
                sentence=f"{capitalised(remedy.sentence)}.",
            )
            for remedy in remedies
        ],
    )


def _causes(messages: Iterable[str]) -> dict[str, int]:
    """Count messages by kind, ignoring numbers; each kind is represented by its first message."""
    alike: dict[str, list[str]] = {}
    for message in messages:
        alike.setdefault(cause_of(message), []).append(message)
    kinds = sorted(alike.values(), key=len, reverse=True)
    return {messages[0]: len(messages) for messages in kinds}


def remedies_of(
    space: SearchSpace,
    calibration: Calibration,
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
    tried: frozenset[tuple[object, ...]] = frozenset(),
) -> list[Remedy]:
    """Return changed requests of which a strategy probably fits, smallest change first, one for
    each set of changed fields. No trial need have run.

    Args:
        tried: layouts that are no remedy.
    """
    question = _Question(
        space=space,
        calibration=calibration,
        objective=objective,
        headroom_gib=headroom_gib,
        tried=tried,
    )
    found: dict[tuple[str, ...], Remedy] = {}
    for remedy in question.remedies():
        found.setdefault(tuple(remedy.fields), remedy)
    return list(found.values())


def _intended_strategy(trial: SearchTrial) -> Strategy:
    """Return the strategy that ran, or the one that it stood in for with fewer layers."""
    return trial.strategy if trial.num_layers is None else trial.full


def _need(
    space: SearchSpace, calibration: Calibration, strategies: Sequence[Strategy]
) -> list[float]:
    """Return the predicted memory of each strategy in GiB, ascending."""
    if not strategies:
        return []
    lattice = Lattice.of(strategies, gpus_per_node=space.machine.gpus_per_node)
    mean, _, _ = calibration.memory.predict(Columns.of(space.transformer, lattice))
    return sorted(np.exp(mean).tolist())


@dataclass(frozen=True, kw_only=True, eq=False)
class _Question:
    """The original request, its possible changes, and the layouts `tried`."""

    space: SearchSpace
    calibration: Calibration
    objective: Objective
    headroom_gib: float
    tried: frozenset[tuple[object, ...]]

    def remedies(self) -> Iterator[Remedy]:
        """Yield remedies, smallest change first: untried strategies, more nodes, each dimension
        alone; if no single dimension is enough, all of them with any layout, then also on more
        nodes."""
        yield from self._changed({})
        on_more = self._on_more_nodes({})
        yield from on_more
        alone = [
            remedy
            for name in RELAXED
            if (wider := self._wider((name,)))
            for remedy in self._changed(wider)
        ]
        yield from alone
        if alone:
            return
        for names in (RELAXED, (*RELAXED, *DIVIDING)):
            together = self._changed(self._wider(names))
            yield from together
            if together:
                return
        if not on_more:
            yield from self._on_more_nodes(self._wider((*RELAXED, *DIVIDING)))

    def _wider(self, names: Sequence[str]) -> dict[str, tuple[Scalar, ...]]:
        """Return every value of the dimensions that have more than the space allows."""
        space, wider = self.space, {}
        for name in names:
            own = space.dimensions[name]
            more = automatic(
                name, space.transformer, space.machine, nodes=space.nodes, program=space.program
            )
            if set(more) - set(own):
                values = dict.fromkeys((*own, *more))
                wider[name] = (
                    tuple(values) if BY_NAME[name].is_named else tuple(sorted(values, key=int))
                )
        return wider

    def _on_more_nodes(self, wider: Mapping[str, tuple[Scalar, ...]]) -> list[Remedy]:
        """Return the same request on the fewest nodes, in doublings, on which a strategy fits."""
        nodes, most = self.space.nodes, self.space.machine.max_nodes
        while nodes < most:
            nodes = min(2 * nodes, most)
            if found := self._changed(wider, nodes=nodes):
                return found
        return []

    def _changed(
        self, wider: Mapping[str, tuple[Scalar, ...]], *, nodes: int | None = None
    ) -> list[Remedy]:
        """Yield the remedy of a changed request, if a strategy of it is likely to fit."""
        space = self.space
        choices: dict[str, DimensionChoice] = {
            name: list(wider.get(name, values)) for name, values in space.dimensions.items()
        }
        if nodes is not None:
            choices["num_nodes"] = [nodes]
        if (wider or nodes) and space.batch.maximum is not None:
            choices[ACCUMULATION] = AUTO
        try:
            changed = SearchSpace.build(
                space.transformer,
                space.machine,
                nodes=nodes or space.nodes,
                choices=choices,
                batch=space.batch,
                program=space.program,
            )
        except InvalidInputs:  # the space is too large
            return []
        return self._best_of(changed)

    def _best_of(self, space: SearchSpace) -> list[Remedy]:
        """Return the fastest untried strategy of a space that probably fits, if any."""
        lattice, calibration = space.lattice(), self.calibration
        if not len(lattice):
            return []
        predicted = estimate(
            space.transformer, space.machine, lattice, parameters=calibration.parameters
        )
        work = log_work(lattice, space.transformer, space.machine, objective=self.objective)
        rates = work - np.log(predicted.iteration_time_s)
        near = np.flatnonzero(predicted.memory_gib <= ROOM * predicted.memory_limit_gib)
        fastest = near[np.argsort(-rates[near], kind="stable")][:LOOKED_AT]
        leanest = near[np.argsort(predicted.memory_gib[near], kind="stable")][:LOOKED_AT]
        rows = np.unique(np.concatenate([fastest, leanest]))
        if not len(rows):
            return []
        lattice, work = lattice.take(rows), work[rows]
        columns = Columns.of(space.transformer, lattice)
        fits = calibration.fit_probability(columns, headroom_gib=self.headroom_gib)
        time, _, _ = calibration.time.predict(columns)
        memory = calibration.memory.mean(columns)
        for row in np.argsort(time - work, kind="stable").tolist():
            strategy = lattice.strategy(row)
            if fits[row] >= LIKELY_TO_FIT and strategy.layout_key() not in self.tried:
                gib = float(np.exp(memory[row]))
                fields = self._fields(space, strategy)
                return [
                    Remedy(
                        fields=fields,
                        strategy=strategy,
                        memory_gib=gib,
                        fit_probability=float(fits[row]),
                        sentence=_words(strategy, fields, gib),
                    )
                ]
        return []

    def _fields(self, space: SearchSpace, strategy: Strategy) -> dict[str, FieldValue]:
        """Return the fields of a request that produce the changed space, limited to what the
        strategy needs."""
        own = self.space
        fields: dict[str, FieldValue] = {}
        if space.nodes != own.nodes:
            fields |= {"nodes": space.nodes, "space.num_nodes": [space.nodes]}
        for name in (*RELAXED, *DIVIDING):
            if getattr(strategy, name) not in own.dimensions[name]:
                fields[f"space.{name}"] = list(space.dimensions[name])
        if fields and own.batch.maximum is not None:
            fields[f"space.{ACCUMULATION}"] = AUTO
        return fields


def _words(strategy: Strategy, fields: Mapping[str, FieldValue], gib: float) -> str:
    names = [field.removeprefix("space.") for field in fields]
    changed = {
        name: getattr(strategy, name)
        for name in names
        if name in DIMENSIONS and name != ACCUMULATION
    }
    if not changed:
        return f"{strategy.short()} has not been tried and would fit, with {gibibytes(gib)}"
    return f"{with_values_words(changed)} it would fit, with {gibibytes(gib)}"


def _sentence(
    trials: int,
    causes: Mapping[str, int],
    need: Sequence[float],
    whole: float,
    remedies: Sequence[Remedy],
) -> str:
    every = f"All {trials} trials" if trials > 1 else "The one trial"
    others = ", ".join(f"{count} of {cause}" for cause, count in causes.items())
    if not need:
        return f"{every} failed: {others}"
    low, high = gibibytes(need[0]).removesuffix(" GiB"), gibibytes(need[-1])
    span = high if low == high.removesuffix(" GiB") else f"{low} to {high}"
    memory = f"their layouts need {span} of each GPU's {whole:.3g}"
    head = (
        f"{every} failed: {others}, and {len(need)} of memory, as {memory}"
        if others
        else f"{every} ran out of memory: {memory}"
    )
    return f"{head}; {remedies[0].sentence if remedies else 'no similar strategy would fit'}"
