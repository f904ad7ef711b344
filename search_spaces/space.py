"""The search space: dimensions and rules."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import numpy as np

from search_spaces.batch import GlobalBatch
from search_spaces.choices import (
    AUTO,
    DimensionChoice,
    automatic,
    automatic_accumulations,
    fixed_default,
    optional_values,
    values_of,
)
from search_spaces.dimensions import ACCUMULATION, BY_NAME, DIMENSIONS, OF_EXPERTS, TABLE, Scalar
from search_spaces.enumeration import (
    CUTTING,
    MOST_COMBINATIONS,
    MOST_DIVISIONS,
    Enumeration,
    Grid,
)
from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion
from search_spaces.lattice import Lattice, Mask
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities, program_masks
from search_spaces.rule import Severity
from search_spaces.rules import rule_masks
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MOST_POINTS = 1_000_000  # enumerated in about half a second and a quarter of a gigabyte
MOST_AUTOMATIC_POINTS = 400_000  # to which optional dimensions may enlarge it; 5 of 8 are legal
COMBINATIONS = "combinations of values"
NAMING_LAYOUTS = tuple(
    d.name for d in TABLE if d.is_searched and d.part != "nodes" and d.name != ACCUMULATION
)
"""A choice for one of these names layouts: nothing is added then, but for what the program itself
says is searched."""


@dataclass(frozen=True, kw_only=True)
class SearchSpace:
    """All strategies of a model on a machine within the user's choices.

    Attributes:
        nodes: the most that a strategy may use.
        dimensions: each dimension, and each of the program's own, -> its values.
        program: that is to run the trials; what it cannot do is not legal.
        experts_as_usual: whether expert_tensor_parallel is 1 or tensor_parallel, as it is where
            its values are automatic.
        sharded_pipelines: whether ZeRO 3 is searched with pipelines. Few programs do it, so that it
            is not where stages are automatic and no program is named.
        given_up: dimension -> automatic values that would have made the space too large.
    """

    transformer: Transformer
    machine: Machine
    nodes: int
    dimensions: Mapping[str, tuple[Scalar, ...]]
    batch: GlobalBatch
    program: ProgramCapabilities = ANY_PROGRAM
    experts_as_usual: bool = False
    sharded_pipelines: bool = True
    given_up: Mapping[str, tuple[Scalar, ...]] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def build(
        cls,
        transformer: Transformer,
        machine: Machine,
        *,
        nodes: int,
        choices: Mapping[str, DimensionChoice],
        batch: GlobalBatch = GlobalBatch(),  # noqa: B008  (frozen, so shared safely)
        program: ProgramCapabilities = ANY_PROGRAM,
        recipe: Mapping[str, Scalar] = MappingProxyType({}),
    ) -> SearchSpace:
        """Return a space from a choice for each dimension; what is left out takes its default.

        Args:
            recipe: values of a published layout, which are added to automatic ones unless the
                choices name a layout.

        Raises:
            InvalidInputs: every choice that cannot be used, named by its dimension; `nodes`;
                `model`, where the program cannot train it.
        """
        problems = list(_faults(nodes, transformer, machine, choices, program))
        values = dict(_unvaried(choices, machine, program, problems))
        published = {} if _names_layout(choices) else recipe
        for dimension in (name for name in DIMENSIONS if name not in values):
            default: DimensionChoice | None = AUTO if BY_NAME[dimension].is_searched else None
            choice = choices.get(dimension, default)
            try:
                if choice is None:
                    values[dimension] = _including(
                        dimension, fixed_default(dimension, machine), published
                    )
                elif choice != AUTO:
                    values[dimension] = values_of(dimension, choice)
                elif not problems and dimension != ACCUMULATION:
                    found = automatic(dimension, transformer, machine, nodes=nodes, program=program)
                    values[dimension] = _including(dimension, found, published)
            except InvalidInput as problem:
                problems.append(problem)
        own = dict(_own_values(choices, program, problems))
        problems += _too_many_nodes(values.get("num_nodes", ()), nodes)
        if problems:
            raise InvalidInputs(problems)
        as_usual = choices.get("expert_tensor_parallel", AUTO) == AUTO
        sharded = program.is_named or choices.get("zero_stage", AUTO) != AUTO
        grid = partial(
            Grid,
            gpus_per_node=machine.gpus_per_node,
            experts_as_usual=as_usual,
            sharded_pipelines=sharded,
        )
        following = _following_tensor_parallel(values, choices, program, transformer)
        values |= following
        wider = optional_values(values, transformer, machine, nodes=nodes, program=program)
        wanted = {
            name: _including(name, each, published)
            for name, each in wider.items()
            if _may_widen(name, {**choices, **following}, program)
        }
        values |= own
        unbatched = grid(dimensions=values)
        _refuse_huge(values, COMBINATIONS, unbatched.size(CUTTING), most=MOST_DIVISIONS)
        combinations = unbatched.combinations(program)
        _refuse_huge(values, COMBINATIONS, combinations, most=MOST_COMBINATIONS)
        if ACCUMULATION not in values:
            values[ACCUMULATION] = automatic_accumulations(values, machine, batch)
        values = {name: values[name] for name in dict.fromkeys((*DIMENSIONS, *values))}
        least = grid(dimensions=values)
        combinations = least.combinations(program)
        _refuse_huge(values, COMBINATIONS, combinations, most=MOST_COMBINATIONS)
        points = least.points(transformer, program, batch)
        _refuse_huge(values, "points", points, most=MOST_POINTS)
        dimensions = _widened(
            values,
            wanted if points <= MOST_AUTOMATIC_POINTS else {},
            lambda dimensions: grid(dimensions=dimensions).points(transformer, program, batch),
        )
        return cls(
            transformer=transformer,
            machine=machine,
            nodes=nodes,
            dimensions=dimensions,
            batch=batch,
            program=program,
            experts_as_usual=as_usual,
            sharded_pipelines=sharded,
            given_up=dict(_left_out(wanted, dimensions)),
        )

    @property
    def settings(self) -> dict[str, tuple[Scalar, ...]]:
        """The dimensions of the program's own -> their values."""
        return {name: each for name, each in self.dimensions.items() if name not in DIMENSIONS}

    @property
    def beyond_all(self) -> dict[str, tuple[Scalar, ...]]:
        """The dimensions that not every space has -> their values: the program's own, and those of
        experts where the model has some."""
        experts = OF_EXPERTS if self.transformer.experts else ()
        return {**self.settings, **{name: self.dimensions[name] for name in experts}}

    @property
    def raw(self) -> int:
        """Points of the grid, legal or not."""
        return self._grid.raw

    @property
    def _grid(self) -> Grid:
        return Grid(
            dimensions=self.dimensions,
            gpus_per_node=self.machine.gpus_per_node,
            experts_as_usual=self.experts_as_usual,
            sharded_pipelines=self.sharded_pipelines,
        )

    def grid(self, *, most: int = MOST_POINTS) -> Lattice:
        """Return the raw points, legal or not, in the order of the dimensions' values;
        where the grid has more than `most`, some of every dimension's values."""
        return self._grid.thinned(most).whole()

    def enumerate(self) -> Enumeration:
        """Return every legal strategy, and which rule removed how many; computed once."""
        return self._enumeration

    def lattice(self) -> Lattice:
        """Return the legal strategies, in the order of the dimensions' values."""
        return self._enumeration.legal

    @cached_property
    def _enumeration(self) -> Enumeration:
        def judge(lattice: Lattice, severity: Severity) -> Mapping[str, Mask]:
            return rule_masks(
                lattice,
                self.transformer,
                self.machine,
                self.batch,
                program=self.program,
                severity=severity,
            )

        parts = self._grid.parts(self.program)
        return Enumeration.of_parts(part.enumerate(judge) for part in parts)

    def refused_by_program(self) -> dict[str, int]:
        """Return the program's own reasons -> how many raw points it refuses for each."""
        counts: Counter[str] = Counter()
        for lattice in (part.open() for part in self._grid.parts(self.program)):
            raw = math.prod(lattice.shape)
            masks = program_masks(lattice, self.transformer, self.machine, self.program)
            for reason, mask in masks.items():
                counts[reason] += int(np.count_nonzero(mask)) * (raw // mask.size)
        return {reason: count for reason, count in counts.items() if count}

    def problem(self, seed: int) -> Any:
        """Return the DeepHyper `HpProblem` over the same dimensions, sampling only legal
        strategies.

        A fixed dimension is a constant, so that every sampled dictionary is a whole strategy.

        Raises:
            InvalidInputs: where no strategy is legal: DeepHyper would sample for ever.
        """
        from deephyper.hpo import HpProblem

        if len(self.lattice()) == 0:
            reason = "no layout of this space is legal"
            raise InvalidInputs([InvalidInput("space", self.raw, reason)])
        problem = HpProblem(seed=seed)
        for dimension, values in self.dimensions.items():
            # DeepHyper takes a list as ordinal (numbers) or categorical.
            domain: Any = values[0] if len(values) == 1 else list(values)
            problem.add_hyperparameter(domain, dimension)
        problem.set_sampling_fn(LegalSampler(self.lattice(), seed=seed))
        return problem


class LegalSampler:
    """Draws legal strategies as dictionaries; the same ones, in the same order, for a seed."""

    def __init__(self, lattice: Lattice, *, seed: int) -> None:
        self._lattice = lattice
        self._generator = np.random.default_rng(seed)

    def __call__(self, size: int) -> list[dict[str, Any]]:
        """Return `size` strategies; each comes once before any comes twice."""
        rows = np.resize(self._generator.permutation(len(self._lattice)), size)
        columns = self._lattice.take(rows).columns
        values = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in values]


def _unvaried(
    choices: Mapping[str, DimensionChoice],
    machine: Machine,
    program: ProgramCapabilities,
    problems: list[InvalidInput],
) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """Yield the dimensions that the program does not vary, each with its one value; add to
    `problems` where another was chosen."""
    for name, fixed in program.fixed:
        if name == "expert_tensor_parallel" and fixed is None:
            continue  # it follows tensor_parallel
        value = fixed_default(name, machine)[0] if fixed is None else fixed
        choice = choices.get(name, AUTO)
        try:
            if choice != AUTO and values_of(name, choice) != (value,):
                reason = f"{program.name} does not vary it"
                raise InvalidInput(name, choice, reason, valid=f"{value}, or auto")
        except InvalidInput as problem:
            problems.append(problem)
        yield name, (value,)


def _own_values(
    choices: Mapping[str, DimensionChoice],
    program: ProgramCapabilities,
    problems: list[InvalidInput],
) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    """Yield the program's own dimensions, each with the values that were chosen: all of them where
    nothing was, but for those that are searched only on demand; add to `problems` where it has no
    such value."""
    for dimension in program.own:
        if not dimension.searched and dimension.name not in choices:
            continue
        try:
            yield dimension.name, dimension.chosen(choices.get(dimension.name, AUTO))
        except InvalidInput as problem:
            problems.append(problem)


def _following_tensor_parallel(
    values: Mapping[str, tuple[Scalar, ...]],
    choices: Mapping[str, DimensionChoice],
    program: ProgramCapabilities,
    transformer: Transformer,
) -> dict[str, tuple[Scalar, ...]]:
    degrees = values["tensor_parallel"]
    following: dict[str, tuple[Scalar, ...]] = {}
    if transformer.experts and program.splits_experts_as_layers:
        following["expert_tensor_parallel"] = degrees
    if program.ties_sequence_parallel(transformer):
        following["sequence_parallel"] = tuple(sorted({int(degree) > 1 for degree in degrees}))
    return {name: each for name, each in following.items() if choices.get(name, AUTO) == AUTO}


def _may_widen(
    dimension: str, choices: Mapping[str, DimensionChoice], program: ProgramCapabilities
) -> bool:
    if dimension in choices or dimension in dict(program.fixed):
        return False
    return dimension in program.searched or not _names_layout(choices)


def _names_layout(choices: Mapping[str, DimensionChoice]) -> bool:
    return any(choices.get(name, AUTO) != AUTO for name in NAMING_LAYOUTS)


def _including(
    dimension: str, values: tuple[Scalar, ...], published: Mapping[str, Scalar]
) -> tuple[Scalar, ...]:
    value = published.get(dimension)
    if value is None or value in values:
        return values
    every = (*values, value)
    return every if BY_NAME[dimension].is_named else tuple(sorted(every, key=int))


def _widened(
    values: Mapping[str, tuple[Scalar, ...]],
    wider: Mapping[str, tuple[Scalar, ...]],
    points: Callable[[Mapping[str, tuple[Scalar, ...]]], int],
) -> dict[str, tuple[Scalar, ...]]:
    rest = list(_given_up(wider))
    while rest:
        whole = {**values, **dict(reversed(rest))}
        if points(whole) <= MOST_AUTOMATIC_POINTS:
            return whole
        del rest[0]
    return dict(values)


def _left_out(
    wanted: Mapping[str, tuple[Scalar, ...]], dimensions: Mapping[str, tuple[Scalar, ...]]
) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    for name, values in wanted.items():
        if missing := tuple(value for value in values if value not in dimensions[name]):
            yield name, missing


def _given_up(
    wider: Mapping[str, tuple[Scalar, ...]],
) -> Iterator[tuple[str, tuple[Scalar, ...]]]:
    for name, values in wider.items():
        usual = tuple(value for value in values if value not in BY_NAME[name].special)
        if usual != values:
            yield name, values
        yield name, usual


def demand_dimensions(strategy: Strategy, machine: Machine, program: ProgramCapabilities) -> None:
    """Raise InvalidInputs for dimensions that a program does not vary or does not have, and values
    of its own dimensions that it lacks, as a space does."""
    own = dict(strategy.settings)
    chosen = {name: strategy.value(name) for name in dict(program.fixed)} | own
    problems = list(_unknown(own, program))
    dict(_unvaried(chosen, machine, program, problems))  # which add to the problems
    dict(_own_values(chosen, program, problems))
    if problems:
        raise InvalidInputs(
            InvalidInput(
                f"strategy.settings.{each.field}"
                if each.field in own
                else f"strategy.{each.field}",
                each.value,
                each.reason,
                valid=each.valid.removesuffix(", or auto"),
            )
            for each in problems
        )


def fixed_values(machine: Machine, program: ProgramCapabilities) -> dict[str, Scalar]:
    """Return the dimensions that a program does not vary, each with its one value."""
    return {name: values[0] for name, values in _unvaried({}, machine, program, [])}


def _faults(
    nodes: int,
    transformer: Transformer,
    machine: Machine,
    choices: Mapping[str, DimensionChoice],
    program: ProgramCapabilities,
) -> Iterator[InvalidInput]:
    if not 1 <= nodes <= machine.max_nodes:
        reason = (
            "at least one node is needed"
            if nodes < 1
            else f"{machine.name} has {machine.max_nodes} node{'s' * (machine.max_nodes > 1)}"
        )
        yield InvalidInput("nodes", nodes, reason, valid=f"1 to {machine.max_nodes}")
    if (untrained := program.untrained(transformer)) is not None:
        valid = "a model without, the simulated evaluator, or another trainer"
        yield InvalidInput("model", transformer.name, untrained, valid=valid)
    yield from _unknown(choices, program)


def _unknown(
    choices: Mapping[str, DimensionChoice], program: ProgramCapabilities
) -> Iterator[InvalidInput]:
    known = (*DIMENSIONS, *(dimension.name for dimension in program.own))
    for name in choices:
        if name not in known:
            reason = f"no such dimension{suggestion(closest(name, known, count=1))}"
            yield InvalidInput(name, choices[name], reason, valid=", ".join(known))


def _too_many_nodes(values: Sequence[Scalar], nodes: int) -> Iterator[InvalidInput]:
    beyond = [value for value in values if int(value) > nodes]
    if beyond:
        reason = f"only {nodes} node{'s' if nodes > 1 else ''} may be used (nodes={nodes})"
        valid = f"at most {nodes}, or raise `nodes` to {beyond[-1]}"
        yield InvalidInput("num_nodes", beyond[-1], reason, valid=valid)


def _refuse_huge(
    dimensions: Mapping[str, tuple[Scalar, ...]], kind: str, count: int, *, most: int
) -> None:
    if count > most:
        sizes = {name: len(values) for name, values in dimensions.items() if len(values) > 1}
        largest = ", ".join(sorted(sizes, key=lambda name: -sizes[name])[:3])
        reason = f"{count:,} {kind} are too many to enumerate; the largest are {largest}"
        problem = InvalidInput("space", count, reason, valid=f"at most {most:,} {kind}")
        raise InvalidInputs([problem])
