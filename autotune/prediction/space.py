"""Size of a space: how many strategies are legal, how many fit, and how many nodes a model
needs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotune.cost_model import Estimate, Parameters, estimate
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import BrokenRule, SpaceReport
from autotune.schemas.requests import SpaceQuery
from autotune.schemas.resolution import machine_shape, model_shape, space_of, subject_of
from autotune.schemas.spaces import SpaceSpec
from autotune.search.layouts import Layouts
from autotune.words.quantities import nodes_of
from search_spaces.dimensions import OF_EXPERTS, setting_text
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.rules import PROGRAM_RULE, RULES
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def queried_space(
    query: SpaceQuery, transformer: Transformer, machine: Machine, *, program: ProgramCapabilities
) -> SearchSpace:
    """Return the space of a query, on all nodes unless it names `num_nodes`; raises InvalidInputs
    as `space_of` does."""
    return space_of(
        query.space,
        transformer,
        machine,
        nodes=query.nodes,
        program=program,
        widest=query.nodes,
    )


def space_report(query: SpaceQuery, *, program: ProgramCapabilities = ANY_PROGRAM) -> SpaceReport:
    """Count the strategies of a space: raw, legal, predicted to fit, and why the rest were removed.

    Args:
        program: the trainer of the query.

    Raises:
        InvalidInputs: fields `model`, `machine`, `nodes`, `space.…`.
    """
    transformer, machine = subject_of(query.model, query.machine)
    space = queried_space(query, transformer, machine, program=program)
    estimated = estimate(transformer, machine, space.lattice())
    obstacle = obstacle_of(space, estimated, spec=query.space)
    return report_of(space, estimated, warnings=[obstacle.reason] if obstacle else [])


def report_of(space: SearchSpace, estimated: Estimate, *, warnings: list[str]) -> SpaceReport:
    """Return the counts of a space and warnings about it.

    Args:
        warnings: warnings that precede those of the space.
    """
    enumeration = space.enumerate()
    batches = np.unique(enumeration.legal.global_batch_size).tolist()
    legal = len(enumeration.legal)
    advice = [
        f"{count} of {legal} legal strategies violate a rule: {RULES[rule].demand}"
        for rule, count in enumeration.warned.items()
    ]
    if len(batches) > 1:
        varying = (
            f"the global batch size varies from {batches[0]} to {batches[-1]} samples, which "
            "affects convergence: fix global_batch_size to compare layouts at the same one"
        )
        advice = [varying, *advice]
    if space.given_up:
        values = "; ".join(
            f"{name} {', '.join(map(setting_text, each))}" for name, each in space.given_up.items()
        )
        advice.append(
            f"left out, because the space would be too large to search: {values}; to search one of "
            "them, name its values, and fewer of another dimension"
        )
    return SpaceReport(
        model=model_shape(space.transformer),
        machine=machine_shape(space.machine),
        dimensions={
            name: list(values)
            for name, values in space.dimensions.items()
            if name not in OF_EXPERTS or name in space.beyond_all
        },
        raw=enumeration.raw,
        legal=legal,
        fitting=int(np.count_nonzero(estimated.fits)),
        layouts=len(fitting_layouts(space, estimated)),
        legal_layouts=Layouts.of(space, objective="tokens_per_s").count if legal else 0,
        global_batch_sizes=batches,
        refusals=list(_removed(space)),
        warnings=[*warnings, *advice],
    )


def _removed(space: SearchSpace) -> Iterator[BrokenRule]:
    for rule, count in space.enumerate().removed.items():
        if rule != PROGRAM_RULE:
            yield BrokenRule(rule=rule, reason=RULES[rule].demand, count=count)
            continue
        for reason, refused in space.refused_by_program().items():
            yield BrokenRule(rule=rule, reason=reason, count=refused)


def fitting_layouts(
    space: SearchSpace,
    estimated: Estimate,
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
) -> list[Strategy]:
    """Return the best strategy of each layout that is predicted to fit with the headroom, most
    promising first."""
    if not estimated.leaves(headroom_gib).any():
        return []
    layouts = Layouts.of(space, objective=objective)
    limit_gib = estimated.limit_leaving(headroom_gib)
    fitting = layouts.lattice.take(layouts.memory_gib <= limit_gib)
    best = {strategy.layout_key(): strategy for strategy in reversed(list(fitting))}
    return list(reversed(best.values()))


def obstacle_of(
    space: SearchSpace,
    estimated: Estimate,
    *,
    spec: SpaceSpec,
    parameters: Parameters | None = None,
) -> InvalidInput | None:
    """Return why no strategy of the space can run: none is legal, or none fits.

    Args:
        spec: what the space was built from, to build it again with more nodes.
        parameters: those of the estimate; the machine's priors by default.
    """
    enumeration = space.enumerate()
    if len(enumeration.legal) == 0:
        removed = "; ".join(
            f"{broken.rule} removed {broken.count} ({broken.reason})" for broken in _removed(space)
        )
        reason = f"none of the {enumeration.raw} strategies is legal: {removed}"
        return InvalidInput("space", enumeration.raw, reason, valid="a space with a legal strategy")
    if not estimated.fits.any():
        return _fits_nowhere(space, estimated, spec=spec, parameters=parameters)
    return None


STEPS = 8
"""Number of node counts tried between successive powers of two."""

FINEST = 64
"""Node counts tried within a gap; the answer is exact if the gap has no more."""


def _fits_nowhere(
    space: SearchSpace, estimated: Estimate, *, spec: SpaceSpec, parameters: Parameters | None
) -> InvalidInput:
    machine = space.machine
    leanest = float(np.min(estimated.memory_gib))
    needs = (
        f"{space.transformer.name} fits nowhere within {nodes_of(space.nodes)}: the leanest "
        f"strategy needs {leanest:.3g} GiB of each GPU's {machine.memory_gib:g} "
        f"({estimated.memory_limit_gib:.3g} of them usable)"
    )
    enough = least_nodes(space, spec=spec, parameters=parameters)
    if enough is None:
        whole = f"the whole of {machine.name}, {nodes_of(machine.max_nodes)},"
        reason = f"{needs}; not even {whole} would do"
        return InvalidInput("nodes", space.nodes, reason, valid="a smaller model or a wider space")
    reason = f"{needs}; the smallest sufficient number of nodes is {enough}"
    return InvalidInput("nodes", space.nodes, reason, valid=f"{enough} or more")


def least_nodes(
    space: SearchSpace, *, spec: SpaceSpec, parameters: Parameters | None = None
) -> int | None:
    """Return the minimum number of nodes, above the space's own, on which a strategy is predicted
    to fit.

    Exact to one part in FINEST between two powers of two; None if not even the whole machine is
    enough.
    """

    def fits(nodes: int) -> bool:
        fixed = spec.model_copy(update={"num_nodes": nodes})
        there = space_of(fixed, transformer, machine, nodes=nodes, program=space.program)
        estimated = estimate(transformer, machine, there.lattice(), parameters=parameters)
        return bool(np.any(estimated.fits))

    transformer, machine, below = space.transformer, space.machine, space.nodes
    for nodes in _node_counts(space.nodes, machine.max_nodes):
        if fits(nodes):
            between = range(below + 1, nodes, -(-(nodes - below) // FINEST))
            return next((n for n in between if fits(n)), nodes)
        below = nodes
    return None


def _node_counts(above: int, most: int) -> Iterator[int]:
    low = 1 << (above.bit_length() - 1)
    while low < most:
        step = max(low // STEPS, 1)
        yield from (n for n in range(low + step, 2 * low + 1, step) if above < n < most)
        low *= 2
    if above < most:
        yield most
