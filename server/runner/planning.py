"""What a campaign's rows say about what to start next. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean

from autotune.cost_model import estimate
from autotune.errors import NothingToPropose
from autotune.measurement import probe_accumulations
from autotune.recommendation import strategies_to_confirm
from autotune.resolution import strategy_of, strategy_shape
from autotune.schemas import Budget, Campaign, Objective, Trial, TrialState
from autotune.search import Proposer, SearchTrial, reason_to_stop
from evaluators.trial import TrialProtocol
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from server.runner.outcomes import SECONDS_PER_HOUR, Subject
from server.store.progress import NewTrial, Purpose

UNTOLD = frozenset(
    {TrialState.CANCELLED, TrialState.LOST, TrialState.NODE_FAIL, TrialState.PREEMPTED}
)
"""Ends that say nothing about the strategy: it may be tried again."""


def observations(trials: Sequence[Trial], *, objective: Objective) -> list[SearchTrial]:
    """The rows as the proposer reads them."""
    return [_observation(t, objective) for t in trials if t.state not in UNTOLD]


def _observation(trial: Trial, objective: Objective) -> SearchTrial:
    strategy = strategy_of(trial.strategy)
    if trial.state is TrialState.PENDING:
        return SearchTrial(strategy=strategy, state="running")
    if trial.state is TrialState.REFUSED:
        return SearchTrial(strategy=strategy, state="refused")
    peak = max(trial.peak_memory_gib_by_rank, default=None)
    if trial.metrics is None:
        oom = trial.state is TrialState.OOM
        return SearchTrial(strategy=strategy, state="failed", out_of_memory=oom)
    rate: float = getattr(trial.metrics, objective)
    return SearchTrial(strategy=strategy, state="ok", objective=rate, peak_memory_gib=peak)


def protocol_of(campaign: Campaign, trial: Trial) -> TrialProtocol:
    """A trial of the search measures at two GAS values; a confirmation at its strategy's own.

    The time limit is for the search's trials: a confirmation that runs more micro-batches than
    these gets as many times longer.
    """
    strategy, spec = strategy_of(trial.strategy), campaign.request.protocol
    probes = probe_accumulations(strategy)
    own = (strategy.gradient_accumulation_steps,)
    measured = own if trial.purpose == "confirmation" else probes
    return TrialProtocol(
        accumulations=measured,
        warmup_iterations=spec.warmup_iterations,
        measured_iterations=spec.measured_iterations,
        time_limit_s=spec.time_limit_s * max(1.0, sum(measured) / sum(probes)),
    )


def free_nodes(campaign: Campaign, pending: Sequence[Trial]) -> int:
    """Of the campaign's pool, those that no trial holds or waits for."""
    pool = campaign.request.pool_nodes or campaign.request.nodes
    return pool - nodes_held(pending)


def nodes_held(trials: Sequence[Trial]) -> int:
    return sum(trial.strategy.num_nodes for trial in trials)


class Costs:
    """Node-hours of a campaign: spent, and expected of what runs, waits, or is about to start.

    A trial is expected to hold its nodes as long as the ended ones did on average; before any has
    ended, until its time limit. Waiting in a queue costs nothing.
    """

    def __init__(self, campaign: Campaign, trials: Sequence[Trial]) -> None:
        durations = [trial.duration_s for trial in trials if trial.duration_s]
        limit_s = campaign.request.protocol.time_limit_s
        self._expected_s = fmean(durations) if durations else limit_s
        self.spent = sum(trial.node_hours or 0.0 for trial in trials)
        self.running = self.of_nodes(nodes_held([t for t in trials if t.state == "pending"]))

    def of_nodes(self, nodes: int) -> float:
        return nodes * self._expected_s / SECONDS_PER_HOUR


def reason_to_end_search(
    campaign: Campaign, trials: Sequence[Trial], *, now: datetime
) -> str | None:
    """Why no further trial of the search may start.

    The confirmations' node-hours are kept back from the budget, each at the cost of an average
    trial on the most nodes.
    """
    costs = Costs(campaign, trials)
    reserve = costs.of_nodes(campaign.request.nodes * campaign.request.protocol.confirmations)
    searched = sum(trial.purpose == "search" and not trial.withdrawn for trial in trials)
    has_ended = any(trial.duration_s for trial in trials)
    return reason_to_stop(
        campaign.request.budget,
        trials=searched,
        node_hours=costs.spent + costs.running + (reserve if has_ended else 0.0),
        now=now,
    )


def is_late(campaign: Campaign, *, now: datetime) -> bool:
    """Whether the deadline has passed, if there is one."""
    only_deadline = Budget(deadline=campaign.request.budget.deadline)
    return reason_to_stop(only_deadline, trials=0, node_hours=0.0, now=now) is not None


def reason_to_end_confirmation(
    campaign: Campaign, trials: Sequence[Trial], *, now: datetime
) -> str | None:
    """Why no further confirmation may start: node-hours or time, never the number of trials."""
    costs = Costs(campaign, trials)
    node_hours = costs.spent + costs.running
    return reason_to_stop(campaign.request.budget, trials=0, node_hours=node_hours, now=now)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to start now, if anything; `end` says why this phase is over once nothing runs."""

    start: tuple[Strategy, ...] = ()
    end: str | None = None


def next_search(
    campaign: Campaign, trials: Sequence[Trial], proposer: Proposer, *, now: datetime
) -> Decision:
    """A strategy for the free nodes, if the budget has room for it.

    One at a time: it starts while the next is thought about, and so do those of other campaigns.
    """
    end = reason_to_end_search(campaign, trials, now=now)
    if end is not None:
        return Decision(end=end)
    pending = [trial for trial in trials if trial.state is TrialState.PENDING]
    free = free_nodes(campaign, pending)
    known = observations(trials, objective=campaign.request.objective)
    try:
        proposed = proposer.propose(known, count=1, free_nodes=free)
    except NothingToPropose as error:
        return Decision(end=str(error))
    if not proposed and not pending:
        return Decision(end=f"nothing that is left to try fits in {free} nodes")
    return Decision(start=tuple(proposed))


def next_confirmations(campaign: Campaign, trials: Sequence[Trial], *, now: datetime) -> Decision:
    """The best few that are still to be measured once more, as far as nodes are free."""
    end = reason_to_end_confirmation(campaign, trials, now=now)
    wanted = [] if end is not None else strategies_to_confirm(campaign, trials)
    if not wanted:
        return Decision(end=campaign.reason)
    free = free_nodes(campaign, [t for t in trials if t.state is TrialState.PENDING])
    fitting: list[Strategy] = []
    for strategy in wanted:
        if strategy.num_nodes <= free:
            fitting.append(strategy)
            free -= strategy.num_nodes
    return Decision(start=tuple(fitting))


def new_trials(
    subject: Subject, strategies: Sequence[Strategy], *, purpose: Purpose
) -> list[NewTrial]:
    """Trials of these strategies, with what the cost model expects of each."""
    lattice = Lattice.of(strategies, gpus_per_node=subject.machine.gpus_per_node)
    predicted = estimate(subject.transformer, subject.machine, lattice)
    return [
        NewTrial(
            strategy=strategy_shape(strategy),
            purpose=purpose,
            predicted_iteration_time_s=float(predicted.iteration_time_s[row]),
            predicted_memory_gib=float(predicted.memory_gib[row]),
        )
        for row, strategy in enumerate(strategies)
    ]
