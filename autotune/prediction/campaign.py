"""Validation of a campaign."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from autotune.baseline import baseline_of
from autotune.calibration.calibration import prior_of
from autotune.measurement.objectives import unknown_objective
from autotune.prediction.campaign_cost import least_node_hours, measurable_layouts
from autotune.prediction.candidates import Candidates
from autotune.prediction.space import obstacle_of, searched_headroom_gib
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import campaign_space, subject_of
from autotune.search import few_nodes
from autotune.search.layouts import Layouts
from autotune.words.quantities import nodes_of
from search_spaces.catalog.machines import unit_slips
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace

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
    obstacle = obstacle_of(request, space)
    if obstacle is not None:
        return [obstacle]
    problems: list[InvalidInput] = []
    if request.screen_layers == "off":
        problems += _too_small_a_pool(request, space)
    if not problems and not others:
        baseline_of(request, space)
        narrow = isinstance(request.screen_nodes, int) or request.screen_layers != "off"
        if narrow or request.budget.max_node_hours is not None:
            problems += _unmeasurable(request, space)
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
    token_counts = {"tokens": request.tokens, "budget.train_tokens": request.budget.train_tokens}
    for field, tokens in token_counts.items():
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
        reason = f"this computer is not a {machine.name}"
        valid = "simulated, or a cluster profile"
        yield InvalidInput("evaluator", request.evaluator, reason, valid=valid)
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


def _unmeasurable(request: CampaignCreate, space: SearchSpace) -> Iterator[InvalidInput]:
    """Yield a problem if no strategy that fits can be measured with fewer layers, and if the
    cheapest first trial exceeds the node-hours; raises InvalidInputs as `few_nodes` does."""
    layouts, prior = Layouts.of(space, objective=request.objective), prior_of(space)
    screening = few_nodes(request, space, layouts)
    headroom_gib = searched_headroom_gib(request, space, prior)
    candidates = Candidates.of(space, prior, layouts=layouts, headroom_gib=headroom_gib)
    measurable = measurable_layouts(request, space, candidates.promising(), screening)
    if screening.layers is not None and not measurable:
        reason = "no layout that can be measured this way within pool_nodes is predicted to fit"
        valid = "off, other layers, or more pool_nodes"
        yield InvalidInput("screen_layers", screening.layers, reason, valid=valid)
    most = request.budget.max_node_hours
    least = least_node_hours(request, space, measurable, screening, parameters=prior.parameters)
    if most is not None and most < least:
        reason = f"too small for a single trial: the cheapest is predicted to take {least:.2g}"
        valid = f"{1.05 * least:.2g} or more"
        yield InvalidInput("budget.max_node_hours", most, reason, valid=valid)
