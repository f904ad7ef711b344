"""The baseline of a campaign: its user's current layout, or a customary one."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autotune.baseline.megatron import arguments, is_arguments
from autotune.baseline.statement import FIELD, LayoutStatement, key_values
from autotune.cost_model import estimate_in
from autotune.cost_model.columns import RECOMPUTED_LAYERS
from autotune.measurement.objectives import headroom_of
from autotune.schemas.campaigns import Campaign
from autotune.schemas.requests import NO_BASELINE, CampaignCreate
from autotune.schemas.resolution import campaign_space
from search_spaces.catalog.recipes import Recipe, recipe_of, recipes_of
from search_spaces.choices import fixed_default
from search_spaces.dimensions import ACCUMULATION, DIMENSIONS, TABLE, Scalar
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.fields import as_table
from search_spaces.lattice import Lattice, Mask
from search_spaces.machine import Machine
from search_spaces.rules import RULES, findings, rule_masks
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

USUAL_ZERO_STAGE = 1
UNSHARDED = 3
"""How unusual whole states are: more than any ZeRO stage."""

RECIPE_TENSOR_PARALLEL = ((13e9, 1), (40e9, 2), (300e9, 4), (float("inf"), 8))
"""Tensor parallelism of models with fewer than so many parameters that a token passes, as in
Megatron-Bridge's pre-training recipes for H100 in bf16 (github
NVIDIA-NeMo/Megatron-Bridge@067f987, src/megatron/bridge/recipes: Llama 3 8B TP 1, 70B TP 4 and PP
4, 405B TP 8 and PP 8; GPT-3 175B TP 4 and PP 8; with experts DeepSeek-V2-Lite, Moonlight, Qwen3-30B
and GLM-4.5 Air TP 1, DeepSeek-V3, Kimi K2 and GLM-4.5 TP 2; but GPT-OSS TP 2, Qwen3-235B TP 4). All
have sequence parallelism with tensor parallelism, and all of these dense ones no recomputation."""
RECIPE_EXPERTS_OF_GPU, LEAST_EXPERT_PARALLEL = 8, 8
"""Experts of a layer on a GPU in these recipes, in the median of twelve (4 to 16 in ten of them),
and the least expert parallelism: DeepSeek-V2-Lite and Moonlight EP 8, GLM-4.5 and Qwen3-30B EP 16,
DeepSeek-V3 EP 32 on 256 GPUs, Kimi K2 EP 32. No recipe splits an expert."""

FOLLOWING = ("activation_checkpointing", "sequence_parallel")
RECOMPUTED = {"none": 0, "full": 2}
"""How much of a layer is recomputed; 1: a part of it."""
UNFIT = 2
MOST_WEIGHED = 100_000
"""Maximum number of illegal strategies that are compared to name the least wrong one."""


def baseline_of(request: CampaignCreate, space: SearchSpace) -> Strategy | None:
    """Return the strategy that a campaign measures first; None if it was declined or nothing would
    run.

    The user's layout may lie outside the space. Dimensions that the user did not name take the most
    customary values of the space; GAS follows from the full batch. Without a user's layout, the
    baseline is the vendor's recipe for this model and GPU, if the space has it and it is predicted
    to fit; otherwise the most customary strategy of the space that is predicted to fit, with the
    headroom if possible. Customary is what Megatron-Bridge's recipes do: all nodes,
    `RECIPE_TENSOR_PARALLEL` for the model's size, about `RECIPE_EXPERTS_OF_GPU`, the smallest
    micro-batch, ZeRO 1, sequence parallelism with tensor parallelism, as little recomputation as
    fits, the fewest stages of equal length, the largest batch.

    Args:
        space: the campaign's.

    Raises:
        InvalidInputs: field `baseline`: it cannot be read, a rule refuses it, or it needs more
            nodes than trials may use.
    """
    choice = request.baseline
    if choice == NO_BASELINE:
        return None
    if choice is None:
        return _customary(space, pool=_pool(request), headroom_gib=_headroom(request, space))
    try:
        read = read_arguments(request, space.transformer)
        return _stated(request, space, read or _statement(choice, space))
    except InvalidInput as problem:
        raise InvalidInputs([problem]) from problem


def read_arguments(request: CampaignCreate, transformer: Transformer) -> LayoutStatement | None:
    """Return what was read of a baseline that is a line of arguments; None for any other.

    Raises:
        InvalidInput: field `baseline`: it cannot be read.
    """
    choice = request.baseline
    if not isinstance(choice, str) or choice == NO_BASELINE or not is_arguments(choice):
        return None
    return arguments(choice, transformer)


def remarks(read: LayoutStatement | None) -> list[str]:
    """Return what to know about a line of arguments before anything is compared with it."""
    if read is None:
        return []
    unread = f"not read: {', '.join(read.unread)}, so the comparison is of layouts only"
    return [*read.notes, *([unread] if read.unread else [])]


def baseline_line(campaign: Campaign) -> str:
    """Return how a baseline that is a line of arguments was read; empty for any other."""
    read = read_arguments(campaign.request, campaign.model)
    return "; ".join([read.layout, *remarks(read)]) if read else ""


def _headroom(request: CampaignCreate, space: SearchSpace) -> float:
    return headroom_of(request.min_headroom_gib, space.transformer, space.machine)


def _pool(request: CampaignCreate) -> int:
    return request.pool_nodes or request.nodes


def _statement(choice: str | Strategy, space: SearchSpace) -> LayoutStatement:
    if isinstance(choice, Strategy):
        dimensions = {name: choice.value(name) for name in DIMENSIONS}
        return LayoutStatement(dimensions=dimensions, settings=dict(choice.settings))
    return key_values(choice, own=tuple(space.settings))


def _customary(space: SearchSpace, *, pool: int, headroom_gib: float) -> Strategy | None:
    lattice = space.lattice()
    lacking = _lacking(space, lattice, headroom_gib=headroom_gib)
    within = lattice["num_nodes"] <= pool
    least = int(np.min(lacking, where=within, initial=UNFIT))
    if least == UNFIT:
        return None
    rows = np.flatnonzero(within & (lacking == least))
    if (recipe := _recipe(space)) is not None:
        published = np.flatnonzero(within & (lacking < UNFIT) & _has(lattice, recipe.dimensions))
        rows = published if len(published) else rows
    candidates = lattice.take(rows)
    return candidates.strategy(int(_by_custom(space, candidates)[0]))


def _recipe(space: SearchSpace) -> Recipe | None:
    return recipe_of(space.transformer, space.machine, str(space.dimensions["precision"][0]))


def _has(lattice: Lattice, dimensions: Mapping[str, Scalar]) -> Mask:
    columns = [lattice[name] == value for name, value in dimensions.items()]
    return np.asarray(np.all(columns, axis=0), dtype=np.bool_)


def baseline_name(
    request: CampaignCreate, transformer: Transformer, machine: Machine, strategy: Strategy
) -> str:
    """Return whose layout a campaign's baseline is: the user's own, a vendor's recipe, or a default
    one."""
    for recipe in recipes_of(transformer, machine, strategy.precision):
        if all(strategy.value(name) == each for name, each in recipe.dimensions.items()):
            return f"{recipe.vendor}'s recipe"
    return "a default layout" if request.baseline is None else "your own layout"


def _stated(request: CampaignCreate, space: SearchSpace, statement: LayoutStatement) -> Strategy:
    own = _space_of(request, space, statement)
    lattice = own.lattice()
    if not len(lattice):
        raise _illegal(request, own, statement)
    within = lattice.take(lattice["num_nodes"] <= _pool(request))
    if not len(within):
        pool = _pool(request)
        reason = f"it needs {int(lattice['num_nodes'].min())} nodes, and all trials share {pool}"
        valid = f"nodes up to {pool}, or a larger pool_nodes"
        raise InvalidInput(FIELD, _shown(request), reason, valid=valid)
    lacking = _lacking(own, within, headroom_gib=_headroom(request, own))
    order = _by_custom(own, within)
    return within.strategy(int(order[np.argsort(lacking[order], kind="stable")][0]))


def _lacking(space: SearchSpace, lattice: Lattice, *, headroom_gib: float) -> NDArray[np.int64]:
    """Return what each strategy is predicted to lack, shape (n,): nothing (0), only the headroom
    (1), or memory (UNFIT)."""
    predicted = estimate_in(space, lattice)
    tight = np.where(predicted.leaves(headroom_gib), 0, 1)
    return np.asarray(np.where(predicted.fits, tight, UNFIT), dtype=np.int64)


def _space_of(
    request: CampaignCreate, space: SearchSpace, statement: LayoutStatement
) -> SearchSpace:
    chosen: dict[str, object] = dict(statement.dimensions)
    batch, wanted = space.batch, statement.global_batch_size
    if wanted is not None and not batch.least <= wanted <= batch.most:
        reason = f"a global batch of {wanted} samples; allowed: {batch}"
        raise InvalidInput(FIELD, _shown(request), reason, valid=f"a global batch of {batch}")
    if wanted is not None:
        chosen["global_batch_size"] = wanted
    if ACCUMULATION not in chosen:
        bounded = wanted is not None or batch.maximum is not None
        chosen[ACCUMULATION] = "auto" if bounded else list(space.dimensions[ACCUMULATION])
    first = statement.settings.get(RECOMPUTED_LAYERS)
    if first and all(each.name != RECOMPUTED_LAYERS for each in space.program.own):
        reason = (
            f"not read: {first} recomputed layers of each stage (only a trainer with a dimension "
            f"{RECOMPUTED_LAYERS} has some layers recomputed and others not)"
        )
        raise InvalidInput(FIELD, _shown(request), reason, valid="every layer, none, or selective")
    chosen["settings"] = {**request.space.settings, **statement.settings}
    spec = request.space.model_copy(update=chosen)
    try:
        return campaign_space(
            request, space.transformer, space.machine, program=space.program, spec=spec
        )
    except InvalidInputs as refusal:
        problem = refusal.problems[0]
        name = problem.field.removeprefix("space.").removeprefix("settings.")
        reason = "; ".join([f"{name} {problem.value}: {problem.reason}", *statement.notes])
        raise InvalidInput(FIELD, _shown(request), reason, valid=problem.valid) from refusal


def _illegal(
    request: CampaignCreate, space: SearchSpace, statement: LayoutStatement
) -> InvalidInput:
    grid = space.grid(most=MOST_WEIGHED)
    judged = (space.transformer, space.machine, space.batch)
    masks = rule_masks(grid, *judged, program=space.program)
    broken = np.sum(list(masks.values()), axis=0)
    order = _by_custom(space, grid)
    nearest = grid.strategy(int(order[np.argmin(broken[order])]))
    reasons: dict[str, str] = {}
    for finding in findings(nearest, *judged, program=space.program):
        if finding.severity == "refuse":
            reasons[RULES[finding.rule].demand] = finding.reason
    uneven = RULES["global_batch"].demand
    if uneven in reasons and ACCUMULATION not in statement.dimensions:
        samples = nearest.with_accumulation(1).global_batch_size(space.machine.gpus_per_node)
        reasons[uneven] = (
            f"micro-batches of {samples} samples in all (micro_batch_size "
            f"{nearest.micro_batch_size} on {samples // nearest.micro_batch_size} replicas) "
            f"make no global batch of {space.batch}"
        )
    return InvalidInput(
        FIELD,
        _shown(request),
        "; ".join([*reasons.values(), *statement.notes]),
        valid="; ".join(reasons),
    )


def _by_custom(space: SearchSpace, lattice: Lattice) -> NDArray[np.int64]:
    tensor, passed = lattice["tensor_parallel"], space.transformer.active_parameters
    recipe = next(degree for most, degree in RECIPE_TENSOR_PARALLEL if passed < most)
    spread = _recipe_expert_parallel(space)
    unusual = np.zeros(len(lattice), dtype=np.int64)
    for dimension in TABLE:
        if not (dimension.is_searched or dimension.name in (*FOLLOWING, "expert_parallel")):
            unusual += lattice[dimension.name] != fixed_default(dimension.name, space.machine)[0]
    for own in space.program.own:
        if own.name in lattice.settings:
            unusual += lattice[own.name] != own.values[0]
    recomputed = [RECOMPUTED.get(kind, 1) for kind in lattice["activation_checkpointing"].tolist()]
    falling_in_weight = (
        -lattice["num_nodes"],
        space.machine.gpus_per_node % tensor != 0,
        np.abs(np.log2(tensor / recipe)),
        np.abs(np.log2(lattice["expert_parallel"] / spread)),
        lattice["micro_batch_size"],
        np.where(lattice["zero_stage"] == 0, UNSHARDED, lattice["zero_stage"] - USUAL_ZERO_STAGE),
        unusual,
        lattice["sequence_parallel"] != (tensor > 1),
        np.array(recomputed, dtype=np.int64),
        space.transformer.num_layers % lattice["pipeline_parallel"] != 0,
        lattice["pipeline_parallel"],
        -lattice.global_batch_size,
    )
    return np.asarray(np.lexsort(falling_in_weight[::-1]), dtype=np.int64)


def _recipe_expert_parallel(space: SearchSpace) -> float:
    experts = space.transformer.experts
    if experts is None:
        return 1.0
    return max(LEAST_EXPERT_PARALLEL, experts.num_experts / RECIPE_EXPERTS_OF_GPU)


def _shown(request: CampaignCreate) -> object:
    choice = request.baseline
    return as_table(choice) if isinstance(choice, Strategy) else choice
