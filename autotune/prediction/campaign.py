"""A campaign before anything runs: whether its input can be used, and what it would cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from autotune.baseline import baseline_of
from autotune.cost_model import Estimate, estimate
from autotune.measurement import SECONDS_PER_HOUR, measured_iterations, probe_accumulations
from autotune.objectives import unknown_objective
from autotune.prediction.left_out import left_out
from autotune.prediction.space import fitting_layouts, nodes_of, obstacle_of, report_of
from autotune.resolution import space_of, strategy_shape, subject_of
from autotune.schemas import (
    BaselinePlan,
    CampaignCreate,
    DryRun,
    EvaluatorName,
    FewNodes,
    ProtocolSpec,
)
from autotune.search import few_nodes
from autotune.search.screening import can_stand_in, stand_in
from autotune.start_up import LOCAL_S, cluster_start_up_s
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

REPRESENTATIVE = 100
"""Layouts, the most promising first, whose predicted trials stand for those of a campaign."""

LOCAL = "local"


def check_campaign(
    request: CampaignCreate,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
    now: datetime | None = None,
) -> SearchSpace:
    """Return a campaign's space, after all of its input was checked.

    Args:
        program: that is to run the trials.
        now: the time that its deadline is compared with; the clock's where not given.

    Raises:
        InvalidInputs: every field that cannot be used: an unknown model or machine, nodes that the
            machine has not, a space in which nothing is legal or nothing fits, a pool or an
            evaluator that could run no trial, a deadline that has passed; once all of that is
            well, a baseline that could not be run, or node-hours that buy no trial.
    """
    problems = list(_late(request.budget.deadline, now or datetime.now(UTC)))
    try:
        transformer, machine = subject_of(request.model, request.machine)
        problems += _misplaced(request, machine)
        space = space_of(request.space, transformer, machine, nodes=request.nodes, program=program)
        estimated = estimate(transformer, machine, space.lattice())
        obstacle = obstacle_of(space, estimated, spec=request.space)
        problems += [obstacle] if obstacle else _too_small_a_pool(request, space)
        problems += [] if obstacle else _too_much_headroom(request, estimated)
        if not problems:
            baseline_of(request, space)
            if isinstance(request.screen_nodes, int):
                few_nodes(request, space)
            problems += _too_few_node_hours(request, space, estimated)
    except InvalidInputs as refusal:
        raise InvalidInputs([*problems, *refusal.problems]) from refusal
    if problems:
        raise InvalidInputs(problems)
    return space


def _late(deadline: datetime | None, now: datetime) -> Iterator[InvalidInput]:
    """Yield a deadline that has passed; one without a time zone is taken as UTC."""
    if deadline is None:
        return
    aware = deadline if deadline.tzinfo else deadline.replace(tzinfo=UTC)
    if aware <= now:
        reason = "this deadline has passed"
        valid = f"a time after {now.isoformat(timespec='seconds')}"
        yield InvalidInput("budget.deadline", deadline.isoformat(), reason, valid=valid)


def _misplaced(request: CampaignCreate, machine: Machine) -> Iterator[InvalidInput]:
    """Yield an objective, an evaluator or a pool that the machine cannot give."""
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
    """Yield a pool smaller than the smallest strategy: its campaign would wait for good."""
    smallest = int(space.lattice()["num_nodes"].min())
    if request.pool_nodes is not None and request.pool_nodes < smallest:
        reason = f"every strategy of the space needs {nodes_of(smallest)} or more"
        valid = f"{smallest} or more"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=valid)


def _too_much_headroom(request: CampaignCreate, estimated: Estimate) -> Iterator[InvalidInput]:
    """Yield a headroom that no strategy is predicted to leave."""
    left = estimated.machine.memory_gib - float(np.min(estimated.memory_gib))
    if request.min_headroom_gib > left:
        reason = f"the leanest strategy of the space is predicted to leave {left:.3g} GiB"
        valid = f"0 to {left:.3g}, or more nodes"
        yield InvalidInput("min_headroom_gib", request.min_headroom_gib, reason, valid=valid)


def _too_few_node_hours(
    request: CampaignCreate, space: SearchSpace, estimated: Estimate
) -> Iterator[InvalidInput]:
    """Yield node-hours that the first trial alone would go beyond, whichever it is."""
    most = request.budget.max_node_hours
    if most is None:
        return
    screening = few_nodes(request, space)
    layouts = fitting_layouts(
        space, estimated, objective=request.objective, headroom_gib=request.min_headroom_gib
    )
    runs = [_run_of(each, space, nodes=screening.nodes) for each in layouts[:REPRESENTATIVE]]
    hours = trial_node_hours(
        space.transformer,
        space.machine,
        runs,
        [probe_accumulations(run) for run in runs],
        protocol=request.protocol,
        evaluator=request.evaluator,
    )
    least = float(np.min(hours, initial=np.inf))
    if runs and most < least:
        reason = f"not one trial can be had for it: the cheapest is predicted to take {least:.2g}"
        yield InvalidInput(
            "budget.max_node_hours", most, reason, valid=f"{1.05 * least:.2g} or more"
        )


def dry_run(request: CampaignCreate, space: SearchSpace) -> DryRun:
    """Return what a campaign would do: its space, its trials' cost, how many its budget buys.

    A deadline is not counted: how long trials wait for nodes is not known.

    Args:
        space: the campaign's, as `check_campaign` gives it.
    """
    estimated = estimate(space.transformer, space.machine, space.lattice())
    report = report_of(space, estimated, warnings=[])
    screening = few_nodes(request, space)
    layouts = fitting_layouts(
        space, estimated, objective=request.objective, headroom_gib=request.min_headroom_gib
    )
    searching, in_full, confirming = _trial_costs(request, space, layouts, screening)
    affordable = min(request.budget.max_trials, len(layouts))
    most = request.budget.max_node_hours
    if most is not None:
        affordable = min(affordable, int(most / searching))
    return DryRun(
        space=report,
        node_hours_per_trial=searching,
        node_hours_budget=most,
        node_hours_expected=max(0, affordable - 1) * searching + in_full + confirming,
        trials_affordable=affordable,
        left_out=left_out(
            space, objective=request.objective, headroom_gib=request.min_headroom_gib
        ),
        baseline=_baseline_plan(request, space),
        screening=screening,
    )


def _baseline_plan(request: CampaignCreate, space: SearchSpace) -> BaselinePlan | None:
    strategy = baseline_of(request, space)
    if strategy is None:
        return None
    gpus = space.machine.gpus_per_node
    lattice = Lattice.of([strategy], gpus_per_node=gpus)
    predicted = estimate(space.transformer, space.machine, lattice)
    return BaselinePlan(
        given=request.baseline is not None,
        strategy=strategy_shape(strategy),
        global_batch_size=strategy.global_batch_size(gpus),
        memory_gib=float(predicted.memory_gib[0]),
        memory_limit_gib=predicted.memory_limit_gib,
        fits=bool(predicted.fits[0]),
        keeps_headroom=bool(predicted.leaves(request.min_headroom_gib)[0]),
    )


def _trial_costs(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> tuple[float, float, float]:
    """Return node-hours of one trial of the search, of one in full (the first), and of all
    confirmations together.

    Confirmations are of the best few layouts, at their own accumulation alone.

    Args:
        promising: layouts that may be searched, the most promising first.
    """
    layouts = promising[:REPRESENTATIVE]
    best = layouts[: request.protocol.confirmations]
    runs = [_run_of(strategy, space, nodes=screening.nodes) for strategy in layouts]
    searching, in_full, confirming = (
        trial_node_hours(
            space.transformer,
            space.machine,
            strategies,
            accumulations,
            protocol=request.protocol,
            evaluator=request.evaluator,
        )
        for strategies, accumulations in (
            (runs, [probe_accumulations(strategy) for strategy in runs]),
            (layouts, [probe_accumulations(strategy) for strategy in layouts]),
            (best, [(strategy.gradient_accumulation_steps,) for strategy in best]),
        )
    )
    return float(np.median(searching)), float(np.median(in_full)), float(np.sum(confirming))


def _run_of(strategy: Strategy, space: SearchSpace, *, nodes: int | None) -> Strategy:
    """Return what is run to measure a strategy: itself, or what stands for it on few nodes."""
    single = Lattice.of([strategy], gpus_per_node=space.machine.gpus_per_node)
    if nodes is None or not can_stand_in(space, single, nodes)[0]:
        return strategy
    return stand_in(strategy, nodes=nodes)


def trial_node_hours(
    transformer: Transformer,
    machine: Machine,
    strategies: Sequence[Strategy],
    accumulations: Sequence[Sequence[int]],
    *,
    protocol: ProtocolSpec,
    evaluator: EvaluatorName,
) -> NDArray[np.float64]:
    """Return predicted node-hours of one trial of each strategy, shape (n,).

    Start-up, then the warm-up at the smallest GAS that it runs and the least number of measured
    iterations at each of the strategy's `accumulations`, one or more; cut at the time limit. How
    many more noise will call for is not known before any trial of the campaign.
    """
    if not strategies:
        return np.zeros(0)
    twins = [
        strategy.with_accumulation(gas)
        for strategy, values in zip(strategies, accumulations, strict=True)
        for gas in (probe_accumulations(strategy)[0], *values)
    ]
    lattice = Lattice.of(twins, gpus_per_node=machine.gpus_per_node)
    times = estimate(transformer, machine, lattice).iteration_time_s
    iterations = measured_iterations(times, least=protocol.measured_iterations)
    first = np.cumsum([0, *(1 + len(values) for values in accumulations[:-1])])
    iterations[first] = protocol.warmup_iterations
    busy_s = np.add.reduceat(iterations * times, first)
    nodes = np.array([strategy.num_nodes for strategy in strategies])
    start_up = LOCAL_S if evaluator == "local" else cluster_start_up_s(nodes)
    trial_s = np.minimum(start_up + busy_s, protocol.time_limit_s)
    return np.asarray(trial_s * nodes / SECONDS_PER_HOUR, dtype=np.float64)
