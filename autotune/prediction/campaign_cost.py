"""Predicted cost of a campaign's trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import estimate
from autotune.measurement import SECONDS_PER_HOUR, measured_iterations, probe_accumulations
from autotune.schemas import CampaignCost, CampaignCreate, EvaluatorName, FewNodes, ProtocolSpec
from autotune.search import stand_ins_of
from autotune.start_up import LOCAL_S, cluster_start_up_s
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

REPRESENTATIVE = 100
"""Layouts, the most promising first, whose predicted trials stand for those of a campaign."""


def campaign_cost(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> CampaignCost:
    """Return the cost of a campaign that uses its whole budget.

    A deadline is not counted: how long trials wait for nodes is not known.

    Args:
        promising: layouts that may be searched, the most promising first.
    """
    layouts = measurable_layouts(request, space, promising, screening)
    if not layouts:
        return CampaignCost(trials=0, node_hours_per_trial=0.0, node_hours=0.0)
    searching, in_full, confirming = _trial_costs(request, space, layouts, screening)
    trials = min(request.budget.max_trials, len(layouts))
    most = request.budget.max_node_hours
    if most is not None:
        trials = min(trials, int(most / searching))
    return CampaignCost(
        trials=trials,
        node_hours_per_trial=searching,
        node_hours=max(0, trials - 1) * searching + in_full + confirming,
    )


def least_node_hours(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> float:
    """Return node-hours of the cheapest trial of the search; infinite without layouts."""
    layouts = measurable_layouts(request, space, promising, screening)[:REPRESENTATIVE]
    hours = _search_node_hours(request, space, layouts, screening)
    return float(np.min(hours, initial=np.inf))


def measurable_layouts(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> Sequence[Strategy]:
    """Return the layouts, in their order; where trials run with fewer layers, without those that
    all trials' nodes are too few for."""
    stand_ins = stand_ins_of(screening, space.transformer)
    if screening.layers is None or stand_ins is None or not promising:
        return promising
    lattice = Lattice.of(promising, gpus_per_node=space.machine.gpus_per_node)
    needed = np.where(
        stand_ins.possible(space, lattice),
        stand_ins.of_all(lattice)["num_nodes"],
        lattice["num_nodes"],
    )
    pool = request.pool_nodes or request.nodes
    return [layout for layout, nodes in zip(promising, needed, strict=True) if nodes <= pool]


def _trial_costs(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> tuple[float, float, float]:
    """Return node-hours of one trial of the search, of one in full (the first), and of all
    confirmations together.

    Confirmations are of the best few layouts, at their own accumulation alone. Where trials run
    with fewer layers, none is in full that all trials' nodes are too few for.

    Args:
        promising: layouts that may be searched, one or more, the most promising first.
    """
    layouts = full = promising[:REPRESENTATIVE]
    if screening.layers is not None:
        pool = request.pool_nodes or request.nodes
        full = [strategy for strategy in layouts if strategy.num_nodes <= pool]
    best = full[: request.protocol.confirmations]
    searching = float(np.median(_search_node_hours(request, space, layouts, screening)))
    in_full, confirming = (
        trial_node_hours(
            space.transformer,
            space.machine,
            strategies,
            accumulations,
            protocol=request.protocol,
            evaluator=request.evaluator,
        )
        for strategies, accumulations in (
            (full, [probe_accumulations(strategy) for strategy in full]),
            (best, [(strategy.gradient_accumulation_steps,) for strategy in best]),
        )
    )
    first = float(np.median(in_full)) if full else searching
    return searching, first, float(np.sum(confirming))


def _search_node_hours(
    request: CampaignCreate, space: SearchSpace, layouts: Sequence[Strategy], screening: FewNodes
) -> NDArray[np.float64]:
    """Return predicted node-hours of one trial of the search for each layout, in some order: of
    itself, or of what stands in for it."""
    narrow, in_full = _runs_of(layouts, space, screening)
    smaller = space.transformer.with_layers(screening.layers)
    hours = [
        trial_node_hours(
            transformer,
            space.machine,
            runs,
            [probe_accumulations(run) for run in runs],
            protocol=request.protocol,
            evaluator=request.evaluator,
        )
        for transformer, runs in ((smaller, narrow), (space.transformer, in_full))
    ]
    return np.concatenate(hours)


def _runs_of(
    layouts: Sequence[Strategy], space: SearchSpace, screening: FewNodes
) -> tuple[list[Strategy], list[Strategy]]:
    """Return what is run to measure layouts: of some what stands in for them, the others
    themselves."""
    stand_ins = stand_ins_of(screening, space.transformer)
    if stand_ins is None or not layouts:
        return [], list(layouts)
    lattice = Lattice.of(layouts, gpus_per_node=space.machine.gpus_per_node)
    possible = stand_ins.possible(space, lattice)
    return list(stand_ins.of_all(lattice.take(possible))), list(lattice.take(~possible))


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
