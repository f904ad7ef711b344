"""Validation and dry run of a scaling study."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.cost_model import estimate
from autotune.prediction.campaign_cost import trial_node_hours
from autotune.prediction.scaling import scaled_strategies, usual_widths
from autotune.prediction.space import nodes_of, report_of
from autotune.resolution import strategy_of, strategy_shape
from autotune.schemas.predictions import DryRun
from autotune.schemas.requests import NO_BASELINE, CampaignCreate, ProtocolSpec
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.studies import StudiedStrategy, StudyPlan, StudySpec
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

LONGEST_S = 86400.0
"""Replaces a trial's time limit, because a trial of a study measures more."""


@dataclass(frozen=True, kw_only=True)
class StudyTrials:
    """Trials of a scaling study.

    Attributes:
        strategies: each once, fewest nodes first, so that results appear early.
        omitted: one sentence for each number of nodes on which a layout cannot run.
    """

    strategies: tuple[Strategy, ...]
    omitted: tuple[str, ...]

    @classmethod
    def of(
        cls,
        request: CampaignCreate,
        transformer: Transformer,
        machine: Machine,
        *,
        program: ProgramCapabilities = ANY_PROGRAM,
    ) -> StudyTrials:
        """Return the trials of a request with a study.

        Raises:
            InvalidInputs: field `study.strategies` is empty, or `study.nodes` leaves nothing to
                compare.
        """
        study = request.study
        assert study is not None
        problems = list(_unusable(study, machine))
        if problems:
            raise InvalidInputs(problems)
        found: dict[Strategy, None] = {}
        omitted: dict[str, None] = {}
        for shape in study.strategies:
            strategy = strategy_of(shape)
            widths = study.nodes or [
                each for each in usual_widths(strategy, machine) if each <= request.nodes
            ]
            for kind in study.kinds:
                points, refused = scaled_strategies(
                    machine, transformer, strategy, kind=kind, nodes=widths, program=program
                )
                found |= dict.fromkeys(points)
                omitted |= {
                    f"not on {nodes_of(nodes)} with {_batch(kind)}: {reason}": None
                    for nodes, reason in refused.items()
                }
                if len(points) < 2:
                    problems.append(_nothing_to_compare(points, widths, kind, refused))
        if problems:
            raise InvalidInputs(problems)
        ordered = sorted(found, key=lambda strategy: strategy.num_nodes)
        return cls(strategies=tuple(ordered), omitted=tuple(omitted))


def study_space(
    request: CampaignCreate,
    transformer: Transformer,
    machine: Machine,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> SearchSpace:
    """Return the strategies of a study as a space, in order; raises InvalidInputs as
    `StudyTrials.of` does."""
    trials = StudyTrials.of(request, transformer, machine, program=program)
    return SearchSpace.listed(transformer, machine, trials.strategies, program=program)


def study_problems(request: CampaignCreate, space: SearchSpace) -> Iterator[InvalidInput]:
    """Yield options that apply to a search only, and a pool that is too small."""
    searching = "a scaling study has no search"
    if request.space != SpaceSpec():
        given = request.space.model_dump(exclude_none=True)
        yield InvalidInput("space", given, searching, valid="`study` or `space`")
    if request.baseline not in (None, NO_BASELINE):
        valid = "the baseline among `study.strategies`"
        yield InvalidInput("baseline", str(request.baseline), searching, valid=valid)
    for field in ("screen_nodes", "screen_layers"):
        value = getattr(request, field)
        if isinstance(value, int):
            yield InvalidInput(field, value, searching, valid="off")
    widest = max(strategy.num_nodes for strategy in space.lattice())
    if request.pool_nodes is not None and request.pool_nodes < widest:
        reason = f"the study's largest trial needs {nodes_of(widest)} at once"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=f"{widest} or more")


def settled(request: CampaignCreate, space: SearchSpace) -> CampaignCreate:
    """Return a study's request with derived fields filled in: its nodes, a budget of all its trials
    unless fewer were requested, and no search options.

    Args:
        space: the study's strategies.
    """
    study = request.study
    assert study is not None
    strategies = list(space.lattice())
    trials = len(strategies)
    if "max_trials" in request.budget.model_fields_set:
        trials = request.budget.max_trials
    widths = sorted({strategy.num_nodes for strategy in strategies})
    return request.model_copy(
        update={
            "study": study.model_copy(update={"nodes": study.nodes or widths}),
            "nodes": widths[-1],
            "baseline": NO_BASELINE,
            "screen_nodes": "off",
            "screen_layers": "off",
            "budget": request.budget.model_copy(update={"max_trials": trials}),
            "protocol": request.protocol.model_copy(update={"confirmations": 0}),
        }
    )


def study_dry_run(request: CampaignCreate, space: SearchSpace) -> DryRun:
    """Return the dry run of a study: its trials, their cost, and how many of them the budget
    allows.

    Args:
        space: the study's strategies.
    """
    transformer, machine, lattice = space.transformer, space.machine, space.lattice()
    estimated = estimate(transformer, machine, lattice)
    strategies = list(lattice)
    hours = trial_node_hours(
        transformer,
        machine,
        strategies,
        [(strategy.gradient_accumulation_steps,) for strategy in strategies],
        protocol=unhurried(request.protocol),
        evaluator=request.evaluator,
    ).tolist()
    trials = [
        StudiedStrategy(
            strategy=strategy_shape(strategy),
            gpus=strategy.world_size(machine.gpus_per_node),
            global_batch_size=strategy.global_batch_size(machine.gpus_per_node),
            iteration_time_s=float(estimated.iteration_time_s[row]),
            memory_gib=float(estimated.memory_gib[row]),
            fits=bool(estimated.fits[row]),
            node_hours=hours[row],
        )
        for row, strategy in enumerate(strategies)
    ]
    omitted = StudyTrials.of(request, transformer, machine, program=space.program).omitted
    budget = request.budget
    affordable, spent = 0, 0.0
    for each in hours[: budget.max_trials]:
        if budget.max_node_hours is not None and spent + each > budget.max_node_hours:
            break
        affordable, spent = affordable + 1, spent + each
    return DryRun(
        space=report_of(space, estimated, warnings=[]),
        node_hours_per_trial=sum(hours) / len(hours),
        node_hours_budget=budget.max_node_hours,
        node_hours_expected=sum(hours),
        trials_affordable=affordable,
        study=StudyPlan(trials=trials, omitted=list(omitted)),
    )


def unhurried(protocol: ProtocolSpec) -> ProtocolSpec:
    """Return the protocol for trials at their own accumulation, without a time limit that would cut
    them."""
    return protocol.model_copy(update={"time_limit_s": LONGEST_S})


def _unusable(study: StudySpec, machine: Machine) -> Iterator[InvalidInput]:
    if not study.strategies:
        reason = "a scaling study needs a layout to measure"
        valid = "a strategy, or in `study.like` the campaign that recommends one"
        yield InvalidInput("study.strategies", [], reason, valid=valid)
    beyond = [each for each in study.nodes if each > machine.max_nodes]
    if beyond:
        reason = f"{machine.name} has {nodes_of(machine.max_nodes)}"
        yield InvalidInput("study.nodes", beyond[0], reason, valid=f"1 to {machine.max_nodes}")


def _batch(kind: str) -> str:
    return "the same batch" if kind == "strong" else "a batch in proportion"


def _nothing_to_compare(
    points: list[Strategy], widths: list[int], kind: str, refused: dict[int, str]
) -> InvalidInput:
    where = f"on {nodes_of(points[0].num_nodes)} alone" if points else "on none of these nodes"
    reason = f"with {_batch(kind)} the layout can run {where}, and scaling compares two or more"
    if refused:
        reason += f" ({'; '.join(f'{nodes}: {why}' for nodes, why in refused.items())})"
    return InvalidInput("study.nodes", widths, reason, valid="numbers of nodes that it divides")
