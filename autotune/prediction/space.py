"""A space: how many of its strategies are legal, how many fit, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autotune.cost_model import Estimate, Parameters, estimate
from autotune.prediction.capacity import fits_nowhere
from autotune.resolution import machine_shape, model_shape, space_of, subject_of
from autotune.schemas import BrokenRule, SpaceQuery, SpaceReport, SpaceSpec
from autotune.search.layouts import Layouts
from search_spaces.errors import InvalidInput
from search_spaces.rules import RULES
from search_spaces.space import Enumeration, SearchSpace
from search_spaces.strategy import Strategy


def space_report(query: SpaceQuery) -> SpaceReport:
    """Counts of a space: raw, legal, predicted to fit; what removed the rest; what to mind.

    Raises:
        InvalidInputs: fields `model`, `machine`, `nodes`, `space.…`.
    """
    transformer, machine = subject_of(query.model, query.machine)
    space = space_of(query.space, transformer, machine, nodes=query.nodes)
    estimated = estimate(transformer, machine, space.lattice())
    obstacle = obstacle_of(space, estimated, spec=query.space)
    return report_of(space, estimated, warnings=[obstacle.reason] if obstacle else [])


def report_of(space: SearchSpace, estimated: Estimate, *, warnings: list[str]) -> SpaceReport:
    enumeration = space.enumerate()
    batches = np.unique(enumeration.legal.global_batch_size).tolist()
    return SpaceReport(
        model=model_shape(space.transformer),
        machine=machine_shape(space.machine),
        dimensions={name: list(values) for name, values in space.dimensions.items()},
        raw=enumeration.raw,
        legal=len(enumeration.legal),
        fitting=int(np.count_nonzero(estimated.fits)),
        layouts=len(fitting_layouts(space, estimated)),
        global_batch_sizes=batches,
        refusals=[
            BrokenRule(rule=rule, reason=RULES[rule].demand, count=count)
            for rule, count in enumeration.removed.items()
        ],
        warnings=[*warnings, *_advice(enumeration, batches)],
    )


def _advice(enumeration: Enumeration, batches: list[int]) -> Iterator[str]:
    """What a user should know of the legal strategies before trusting a comparison of them."""
    if len(batches) > 1:
        yield (
            f"the global batch size varies from {batches[0]} to {batches[-1]} samples, and it "
            "decides how a model converges: fix global_batch_size to compare like with like"
        )
    legal = len(enumeration.legal)
    for rule, count in enumeration.warned.items():
        yield f"{count} of {legal} legal strategies go against a rule: {RULES[rule].demand}"


def fitting_layouts(space: SearchSpace, estimated: Estimate) -> list[Strategy]:
    """The first of each layout's twins for all that are predicted to fit, most promising first."""
    if not estimated.fits.any():
        return []
    layouts = Layouts.of(space, objective="tokens_per_s")
    return list(layouts.lattice.take(layouts.memory_gib <= layouts.memory_limit_gib))


def obstacle_of(
    space: SearchSpace,
    estimated: Estimate,
    *,
    spec: SpaceSpec,
    parameters: Parameters | None = None,
) -> InvalidInput | None:
    """Why nothing of the space can be tried: nothing legal, or nothing that fits.

    Args:
        parameters: that the estimate was made with; general knowledge where not given.
    """
    enumeration = space.enumerate()
    if len(enumeration.legal) == 0:
        return _nothing_legal(enumeration)
    if not estimated.fits.any():
        return fits_nowhere(space, estimated, spec=spec, parameters=parameters)
    return None


def _nothing_legal(enumeration: Enumeration) -> InvalidInput:
    removed = "; ".join(
        f"{rule} removed {count} ({RULES[rule].demand})"
        for rule, count in enumeration.removed.items()
    )
    reason = f"none of the {enumeration.raw} strategies is legal: {removed}"
    return InvalidInput("space", enumeration.raw, reason, valid="a space with a legal strategy")
