"""Predicted cost of a campaign's trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import Parameters, estimate
from autotune.measurement.metrics import (
    LOCAL_S,
    SECONDS_PER_HOUR,
    cluster_start_up_s,
    measured_iterations,
    probe_accumulations,
)
from autotune.schemas.campaigns import FewNodes
from autotune.schemas.choices import EvaluatorName
from autotune.schemas.predictions import CampaignCost
from autotune.schemas.requests import CampaignCreate, ProtocolSpec
from autotune.search import stand_ins_of
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

REPRESENTATIVE = 100
"""Number of promising layouts whose predicted cost stands for the cost of a campaign's trials."""


def campaign_cost(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
    *,
    parameters: Parameters,
) -> CampaignCost:
    """Return the cost of a campaign that uses its whole budget.

    The deadline is ignored, since queueing times are unknown.

    Args:
        promising: layouts of the search, most promising first.
        parameters: constants of the machine and trainer.
    """
    layouts = measurable_layouts(request, space, promising, screening)
    if not layouts:
        return CampaignCost(trials=0, node_hours_per_trial=0.0, node_hours=0.0)
    searching, in_full, confirming = _trial_costs(request, space, layouts, screening, parameters)
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
    measurable: Sequence[Strategy],
    screening: FewNodes,
    *,
    parameters: Parameters,
) -> float:
    """Return the node-hours of the cheapest search trial of the most promising layouts; infinite
    without layouts."""
    hours = _search_node_hours(request, space, measurable[:REPRESENTATIVE], screening, parameters)
    return float(np.min(hours, initial=np.inf))


def measurable_layouts(
    request: CampaignCreate,
    space: SearchSpace,
    promising: Sequence[Strategy],
    screening: FewNodes,
) -> Sequence[Strategy]:
    """Return the layouts that can be measured, in order. If trials run with fewer layers, layouts
    that do not fit on the trials' nodes are dropped."""
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
    parameters: Parameters,
) -> tuple[float, float, float]:
    """Return the node-hours of one search trial, of one full-size trial, and of all confirmations
    together.

    Confirmations run the best few layouts, at their own accumulation only. If trials run with fewer
    layers, layouts that need more than the trials' nodes at full size are not confirmed.

    Args:
        promising: layouts of the search, at least one, most promising first.
    """
    layouts = full = promising[:REPRESENTATIVE]
    if screening.layers is not None:
        pool = request.pool_nodes or request.nodes
        full = [strategy for strategy in layouts if strategy.num_nodes <= pool]
    best = full[: request.protocol.confirmations]
    if request.evaluator != "simulated":
        best = [*best, *best[:1]]  # which is confirmed twice
    searching = float(np.median(_search_node_hours(request, space, layouts, screening, parameters)))
    in_full, confirming = (
        trial_node_hours(
            space.transformer,
            space.machine,
            strategies,
            accumulations,
            protocol=request.protocol,
            evaluator=request.evaluator,
            parameters=parameters,
        )
        for strategies, accumulations in (
            (full, [probe_accumulations(strategy) for strategy in full]),
            (best, [(strategy.gradient_accumulation_steps,) for strategy in best]),
        )
    )
    first = float(np.median(in_full)) if full else searching
    return searching, first, float(np.sum(confirming))


def _search_node_hours(
    request: CampaignCreate,
    space: SearchSpace,
    layouts: Sequence[Strategy],
    screening: FewNodes,
    parameters: Parameters,
) -> NDArray[np.float64]:
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
            parameters=parameters,
        )
        for transformer, runs in ((smaller, narrow), (space.transformer, in_full))
    ]
    return np.concatenate(hours)


def _runs_of(
    layouts: Sequence[Strategy], space: SearchSpace, screening: FewNodes
) -> tuple[list[Strategy], list[Strategy]]:
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
    parameters: Parameters | None = None,
) -> NDArray[np.float64]:
    """Return the predicted node-hours of one trial of each strategy, shape (n,).

    The sum of start-up, warm-up at the smallest GAS, and the minimum number of measured iterations
    at each of the strategy's `accumulations`, limited by the time limit. How many more iterations
    noise will require is unknown before the first trial.
    """
    if not strategies:
        return np.zeros(0)
    twins = [
        strategy.with_accumulation(gas)
        for strategy, values in zip(strategies, accumulations, strict=True)
        for gas in (probe_accumulations(strategy)[0], *values)
    ]
    lattice = Lattice.of(twins, gpus_per_node=machine.gpus_per_node)
    times = estimate(transformer, machine, lattice, parameters=parameters).iteration_time_s
    iterations = measured_iterations(times, least=protocol.measured_iterations)
    first = np.cumsum([0, *(1 + len(values) for values in accumulations[:-1])])
    iterations[first] = protocol.warmup_iterations
    busy_s = np.add.reduceat(iterations * times, first)
    nodes = np.array([strategy.num_nodes for strategy in strategies])
    start_up = LOCAL_S if evaluator == "local" else cluster_start_up_s(nodes)
    trial_s = np.minimum(start_up + busy_s, protocol.time_limit_s)
    return np.asarray(trial_s * nodes / SECONDS_PER_HOUR, dtype=np.float64)
