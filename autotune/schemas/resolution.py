"""From the wire models to the domain and back.

Names and shapes only, never paths: the service reads no file that a caller names.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from autotune.schemas.requests import CampaignCreate
from autotune.schemas.shapes import MachineChoice, ModelChoice
from autotune.schemas.spaces import BatchBounds, Range, SpaceSpec
from search_spaces.automatic import powers_of_two
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import (
    consistent_machine,
    consistent_model,
    load_machine,
    load_model,
    load_space,
    model_with,
)
from search_spaces.catalog.recipes import recipe_of
from search_spaces.choices import AUTO, DimensionChoice, values_of
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine, default_precision
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

BATCH = "global_batch_size"
NODES = "num_nodes"
MOST_STRATEGIES = 250_000  # legal ones: to estimate them takes about 5 s and 0.3 GB
OUTSIDE_SPACE = ("model", "nodes", "space")  # fields of a request that do not lie under its `space`


def transformer_of(choice: ModelChoice) -> Transformer:
    """Return the chosen model; raises InvalidInput (`model`) or InvalidInputs (`model.…`)."""
    if isinstance(choice, str):
        name, _, line = choice.partition(",")
        return model_with(name, line) if "=" in line else load_model(choice)
    return consistent_model(choice)


def machine_of(choice: MachineChoice) -> Machine:
    """Return the chosen machine; raises InvalidInput (`machine`) or InvalidInputs (`machine.…`)."""
    if isinstance(choice, str):
        return load_machine(choice)
    return consistent_machine(choice)


def space_of(
    spec: SpaceSpec,
    transformer: Transformer,
    machine: Machine,
    *,
    nodes: int,
    program: ProgramCapabilities = ANY_PROGRAM,
    widest: int | None = None,
) -> SearchSpace:
    """Return the preset, if named, with the given fields replaced.

    Args:
        program: the trainer of the trials.
        widest: if neither the request nor the preset names `num_nodes`, use only this many nodes,
            or the most below that are legal; None allows 1, 2, 4, … `nodes`.

    Raises:
        InvalidInputs: fields `space.…` and `nodes`.
    """
    try:
        ready = dict(load_space(spec.preset)) if spec.preset is not None else {}
        batch = _batch_of(spec.global_batch_size or ready.pop(BATCH, None))
        choices = ready | {
            name: choice.model_dump() if isinstance(choice, Range) else choice
            for name in DIMENSIONS
            if (choice := getattr(spec, name)) is not None
        }
        _refuse_as_settings(spec.settings)
        choices |= spec.settings
        recipe = recipe_of(transformer, machine, _precision(choices, machine))
        build = partial(
            SearchSpace.build,
            transformer,
            machine,
            nodes=nodes,
            batch=batch,
            program=program,
            recipe=recipe.dimensions if recipe else {},
        )
        if widest is not None and NODES not in choices:
            narrower = build(choices={**choices, NODES: [*powers_of_two(widest), widest]})
            most = int(narrower.lattice()[NODES].max(initial=0))
            space = build(choices={**choices, NODES: most}) if most else narrower
        else:
            space = build(choices=choices)
        _refuse_too_large(space)
        return space
    except InvalidInput as problem:
        raise InvalidInputs([_within_space(problem, spec)]) from problem
    except InvalidInputs as refusal:
        problems = [_within_space(problem, spec) for problem in refusal.problems]
        raise InvalidInputs(problems) from refusal


def campaign_space(
    request: CampaignCreate,
    transformer: Transformer,
    machine: Machine,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
    spec: SpaceSpec | None = None,
) -> SearchSpace:
    """Return the space that a campaign searches.

    Fewer nodes give fewer tokens/s, so under that objective all strategies use the most nodes that
    trials may use, unless the request names `num_nodes`.

    Args:
        spec: used instead of the request's space.

    Raises:
        InvalidInputs: fields `space.…` and `nodes`.
    """
    widest = None
    if request.objective == "tokens_per_s":
        in_full = request.screen_layers == "off"
        widest = min(request.nodes, (in_full and request.pool_nodes) or request.nodes)
    return space_of(
        spec or request.space,
        transformer,
        machine,
        nodes=request.nodes,
        program=program,
        widest=widest,
    )


def _precision(choices: Mapping[str, DimensionChoice], machine: Machine) -> str:
    choice = choices.get("precision", AUTO)
    if choice == AUTO:
        return str(default_precision(machine))
    try:
        return str(values_of("precision", choice)[0])
    except InvalidInput:
        return ""  # the space refuses it together with other wrong choices


def _refuse_too_large(space: SearchSpace) -> None:
    legal = len(space.lattice())
    if legal > MOST_STRATEGIES:
        reason = f"{legal:,} strategies are legal, which are too many to estimate"
        valid = (
            f"at most {MOST_STRATEGIES:,}: fewer values of some dimensions, or a fixed "
            "global_batch_size"
        )
        raise InvalidInput("space", legal, reason, valid=valid)


def _refuse_as_settings(settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name in DIMENSIONS:
            reason = "a dimension that every trainer has"
            raise InvalidInput(name, settings[name], reason, valid=f"space.{name}")


def _within_space(problem: InvalidInput, spec: SpaceSpec) -> InvalidInput:
    if problem.field == "space" and isinstance(problem.value, str):
        field = "space.preset"
    elif problem.field in spec.settings:
        field = f"space.settings.{problem.field}"
    else:
        field = problem.field if problem.field in OUTSIDE_SPACE else f"space.{problem.field}"
    return InvalidInput(field, problem.value, problem.reason, valid=problem.valid)


def _batch_of(size: int | BatchBounds | dict[str, Any] | None) -> GlobalBatch:
    if size is None:
        return GlobalBatch()
    if isinstance(size, int):
        return GlobalBatch.of(size)
    bounds = size if isinstance(size, dict) else size.model_dump()
    return GlobalBatch(**bounds)


def subject_of(model: ModelChoice, machine: MachineChoice) -> tuple[Transformer, Machine]:
    """Return the model and the machine. Raises InvalidInputs with every error of both."""
    problems: list[InvalidInput] = []
    resolved: list[Transformer | Machine] = []
    for resolve in (lambda: transformer_of(model), lambda: machine_of(machine)):
        try:
            resolved.append(resolve())
        except InvalidInput as problem:
            problems.append(problem)
        except InvalidInputs as refusal:
            problems += refusal.problems
    if problems:
        raise InvalidInputs(problems)
    return resolved[0], resolved[1]  # type: ignore[return-value]
