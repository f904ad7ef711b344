"""Validation and dry run of a campaign."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from autotune.baseline import baseline_of, read_arguments, remarks
from autotune.calibration import general_knowledge
from autotune.cost_model import Estimate, estimate
from autotune.explanation.what_if import left_out
from autotune.measurement.objectives import unknown_objective
from autotune.prediction.campaign_cost import campaign_cost, least_node_hours, measurable_layouts
from autotune.prediction.space import fitting_layouts, obstacle_of, report_of
from autotune.schemas.predictions import BaselinePlan, DryRun
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import campaign_space, strategy_shape, subject_of
from autotune.search import few_nodes
from autotune.words.quantities import nodes_of
from search_spaces.catalog.machines import unit_slips
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

LOCAL = "local"
FEWEST_TOKENS = 1e6
"""Minimum of a training whose cost is asked for; a lower number has usually lost its unit (B, T).
"""


def check_campaign(
    request: CampaignCreate,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
    now: datetime | None = None,
) -> SearchSpace:
    """Validate a campaign request and return its space.

    Args:
        program: the trainer that will run the trials.
        now: the time that the deadline is compared with; the current time by default.

    Raises:
        InvalidInputs: every invalid field: an unknown model or machine, more nodes than the machine
            has, a space without a legal or fitting strategy, a pool or an evaluator that can run no
            trial, a deadline in the past; if all of these are valid, a baseline that cannot run, or
            node-hours too few for one trial.
    """
    problems = list(_late(request.budget.deadline, now or datetime.now(UTC)))
    try:
        transformer, machine = subject_of(request.model, request.machine)
        problems += misplaced(request, machine)
        space = campaign_space(request, transformer, machine, program=program)
        problems += _search_problems(request, space, others=bool(problems))
    except InvalidInputs as refusal:
        raise InvalidInputs([*problems, *refusal.problems]) from refusal
    if problems:
        raise InvalidInputs(problems)
    return space


def _search_problems(
    request: CampaignCreate, space: SearchSpace, *, others: bool
) -> list[InvalidInput]:
    """Return the problems that would keep a search from succeeding.

    Args:
        others: whether there are other problems; baseline and budget are then not checked yet.
    """
    estimated = estimate(space.transformer, space.machine, space.lattice())
    obstacle = obstacle_of(space, estimated, spec=request.space)
    if obstacle is not None:
        return [obstacle]
    problems: list[InvalidInput] = []
    if request.screen_layers == "off":
        problems += _too_small_a_pool(request, space)
    problems += _too_much_headroom(request, estimated)
    if not problems and not others:
        baseline_of(request, space)
        narrow = isinstance(request.screen_nodes, int) or request.screen_layers != "off"
        if narrow or request.budget.max_node_hours is not None:
            problems += _unmeasurable(request, space, estimated)
    return problems


def _late(deadline: datetime | None, now: datetime) -> Iterator[InvalidInput]:
    if deadline is None:
        return
    aware = deadline if deadline.tzinfo else deadline.replace(tzinfo=UTC)
    if aware <= now:
        reason = "this deadline has passed"
        valid = f"a time after {now.isoformat(timespec='seconds')}"
        yield InvalidInput("budget.deadline", deadline.isoformat(), reason, valid=valid)


def misplaced(request: CampaignCreate, machine: Machine) -> Iterator[InvalidInput]:
    """Yield an objective, evaluator or pool that the machine does not support, and figures in a
    wrong unit."""
    if not isinstance(request.machine, str):
        yield from unit_slips(machine)
    told = {"tokens": request.tokens, "budget.train_tokens": request.budget.train_tokens}
    for field, tokens in told.items():
        if tokens is not None and tokens < FEWEST_TOKENS:
            reason = f"a training cannot be as short as {tokens:g} tokens"
            valid = f"billions as {tokens:g}B, trillions as {tokens:g}T, or {tokens:g}e9"
            yield InvalidInput(field, tokens, reason, valid=valid)
    if request.surrogate != "forest" and request.search != "deephyper":
        reason = f"the search {request.search} has no surrogate to choose"
        valid = "forest, or another with search deephyper"
        yield InvalidInput("surrogate", request.surrogate, reason, valid=valid)
    unknown = unknown_objective(request.objective, machine)
    if unknown is not None:
        yield unknown
    if request.evaluator == LOCAL and machine.name != LOCAL:
        reason = f"real trials run on this machine, named {LOCAL!r}, and not on {machine.name!r}"
        yield InvalidInput("evaluator", request.evaluator, reason, valid="simulated, or local")
    if request.pool_nodes is not None and request.pool_nodes > machine.max_nodes:
        reason = f"{machine.name} has {nodes_of(machine.max_nodes)}"
        valid = f"1 to {machine.max_nodes}"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=valid)


def _too_small_a_pool(request: CampaignCreate, space: SearchSpace) -> Iterator[InvalidInput]:
    smallest = int(space.lattice()["num_nodes"].min())
    if request.pool_nodes is not None and request.pool_nodes < smallest:
        reason = f"every strategy of the space needs {nodes_of(smallest)} or more"
        valid = f"{smallest} or more"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=valid)


def _too_much_headroom(request: CampaignCreate, estimated: Estimate) -> Iterator[InvalidInput]:
    left = estimated.machine.memory_gib - float(np.min(estimated.memory_gib))
    if request.min_headroom_gib > left:
        reason = f"the leanest strategy of the space is predicted to leave {left:.3g} GiB"
        valid = f"0 to {left:.3g}, or more nodes"
        yield InvalidInput("min_headroom_gib", request.min_headroom_gib, reason, valid=valid)


def _unmeasurable(
    request: CampaignCreate, space: SearchSpace, estimated: Estimate
) -> Iterator[InvalidInput]:
    """Yield a problem if no strategy that fits can be measured with fewer layers, and if the
    cheapest first trial exceeds the node-hours; raises InvalidInputs as `few_nodes` does."""
    screening = few_nodes(request, space)
    layouts = fitting_layouts(
        space, estimated, objective=request.objective, headroom_gib=request.min_headroom_gib
    )
    measurable = measurable_layouts(request, space, layouts, screening)
    if screening.layers is not None and not measurable:
        reason = "no layout that can be measured this way within pool_nodes is predicted to fit"
        valid = "off, other layers, or more pool_nodes"
        yield InvalidInput("screen_layers", screening.layers, reason, valid=valid)
    most = request.budget.max_node_hours
    least = least_node_hours(request, space, measurable, screening)
    if layouts and most is not None and most < least:
        reason = f"too small for a single trial: the cheapest is predicted to take {least:.2g}"
        valid = f"{1.05 * least:.2g} or more"
        yield InvalidInput("budget.max_node_hours", most, reason, valid=valid)


def dry_run(request: CampaignCreate, space: SearchSpace) -> DryRun:
    """Return the dry run of a campaign: its space, the cost of its trials, and how many of them the
    budget allows.

    The deadline is ignored, since queueing times are unknown.

    Args:
        space: the campaign's space, from `check_campaign`.
    """
    estimated = estimate(space.transformer, space.machine, space.lattice())
    report = report_of(space, estimated, warnings=[])
    screening = few_nodes(request, space)
    layouts = fitting_layouts(
        space, estimated, objective=request.objective, headroom_gib=request.min_headroom_gib
    )
    cost = campaign_cost(request, space, layouts, screening)
    return DryRun(
        space=report,
        node_hours_per_trial=cost.node_hours_per_trial,
        node_hours_budget=request.budget.max_node_hours,
        node_hours_expected=cost.node_hours,
        trials_affordable=cost.trials,
        left_out=left_out(
            space,
            general_knowledge(space.machine, space.program.tuning, space.program.states),
            layouts[0],
            objective=request.objective,
            headroom_gib=request.min_headroom_gib,
        )
        if layouts
        else [],
        baseline=_baseline_plan(request, space),
        screening=screening,
    )


def _baseline_plan(request: CampaignCreate, space: SearchSpace) -> BaselinePlan | None:
    strategy = baseline_of(request, space)
    if strategy is None:
        return None
    read = read_arguments(request, space.transformer)
    gpus = space.machine.gpus_per_node
    lattice = Lattice.of([strategy], gpus_per_node=gpus)
    predicted = estimate(space.transformer, space.machine, lattice)
    plan = BaselinePlan(
        given=request.baseline is not None,
        strategy=strategy_shape(strategy),
        global_batch_size=strategy.global_batch_size(gpus),
        memory_gib=float(predicted.memory_gib[0]),
        memory_limit_gib=predicted.memory_limit_gib,
        fits=bool(predicted.fits[0]),
        keeps_headroom=bool(predicted.leaves(request.min_headroom_gib)[0]),
        unread=list(read.unread) if read else [],
    )
    sentence = _baseline_sentence(plan, strategy)
    return plan.model_copy(update={"sentence": "; ".join([sentence, *remarks(read)])})


def _baseline_sentence(plan: BaselinePlan, strategy: Strategy) -> str:
    origin = "your own layout" if plan.given else "as in Megatron-Bridge's recipes for this size"
    line = f"{strategy.short()}: {origin}, batch {plan.global_batch_size}"
    if plan.keeps_headroom:
        return line
    if plan.fits:
        return f"{line}; predicted to leave less memory free than requested"
    return (
        f"{line}; predicted to run out of memory: it needs {plan.memory_gib:.3g} GiB of each GPU, "
        f"of which {plan.memory_limit_gib:.3g} GiB are usable"
    )
