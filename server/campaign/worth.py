"""The cost of a trial, and whether its expected gain is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from autotune.calibration.calibration import prior_of
from autotune.knobs.phase import without_knobs
from autotune.measurement.metrics import LOCAL_S, cluster_start_up_s
from autotune.prediction.space import searched_headroom_gib
from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import place
from autotune.recommendation.recommendation import training_cost
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.search import (
    CampaignBelief,
    Proposal,
    Proposer,
    SearchTrial,
    TrialCost,
    is_worth_confirming,
    reason_to_spare,
    stand_ins_of,
)
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

KWH_PER_MWH = 1000.0


@dataclass(frozen=True, kw_only=True)
class TrainingAccount:
    """The training that a layout is for, and the cost of a trial in the same unit.

    The unit is node-hours, or energy if that is the campaign's objective. A trial's nodes are
    assumed to have the power of the best layout so far.

    Attributes:
        training: cost of the whole training with the best layout so far.
        of_node_hour: cost of one node-hour of a trial.
        unit: of both.
    """

    training: float
    of_node_hour: float = 1.0
    unit: str = "node-hours"

    @classmethod
    def of(
        cls, campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
    ) -> TrainingAccount | None:
        """Return the account of a campaign; None if it has no best yet, or no training to compare
        with."""
        training = training_cost(campaign, trials, belief=belief)
        if training is None or campaign.request.budget.train_tokens is None:
            return None
        energy = training.energy_mwh
        if campaign.request.objective != "tokens_per_joule" or energy is None:
            return cls(training=training.node_hours)
        kwh = energy * KWH_PER_MWH
        return cls(training=kwh, of_node_hour=kwh / training.node_hours, unit="kWh")

    def cost(self, node_hours: float) -> float:
        return node_hours * self.of_node_hour


def may_stop_early(campaign: Campaign) -> bool:
    return campaign.request.budget.stop_early and campaign.request.search == "calibrated"


def reason_to_spare_trial(
    campaign: Campaign, trials: Sequence[Trial], proposal: Proposal, *, belief: CampaignBelief
) -> str | None:
    """Return why another trial is not worth its cost; None without a training to compare with."""
    budget = campaign.request.budget
    early = may_stop_early(campaign)
    account = TrainingAccount.of(campaign, trials, belief=belief) if early else None
    if account is None or budget.train_tokens is None or proposal.expected_saving is None:
        return None
    return reason_to_spare(
        account.cost(proposal.expected.node_hours),
        saving=proposal.expected_saving,
        training=account.training,
        unit=account.unit,
        tokens=budget.train_tokens,
    )


def worth_confirming(
    campaign: Campaign,
    trials: Sequence[Trial],
    proposer: Proposer,
    wanted: Sequence[Strategy],
    *,
    known: Sequence[SearchTrial],
) -> list[Strategy]:
    """Return the best layout itself, if requested, and those that may still be better.

    A layout whose confirmation is running is ranked as confirmed: another one may lead by its
    projection meanwhile.

    Args:
        known: the trials in the proposer's form.
    """
    pending = (trial for trial in trials if trial.state is TrialState.PENDING)
    again = {trial.strategy.layout_key() for trial in pending if trial.purpose == "confirmation"}
    ranked = sorted(
        all_contenders(campaign, trials, belief=proposer.belief),
        key=lambda each: place(each, confirming=each.strategy.layout_key() in again),
    )
    seconds = {each.strategy.layout_key(): each.metrics.iteration_time_s for each in ranked}
    best = next(iter(seconds), None)
    others = [strategy for strategy in wanted if strategy.layout_key() != best]
    if not others:
        return list(wanted)
    account = TrainingAccount.of(campaign, trials, belief=proposer.belief)
    trial_costs = trial_cost(campaign, trials)
    rivals = proposer.rivals(known, ranked[0].strategy, others)
    unworthy = {
        strategy
        for strategy, rival in zip(others, rivals, strict=True)
        for node_hours in [
            trial_costs.confirmation_node_hours(
                strategy,
                iteration_time_s=seconds[strategy.layout_key()],
                gpus_per_node=campaign.machine.gpus_per_node,
            )
        ]
        if not is_worth_confirming(
            rival,
            cost=account.cost(node_hours) if account else node_hours,
            training=account.training if account else None,
        )
    }
    return [strategy for strategy in wanted if strategy not in unworthy]


def proposer_of(
    campaign: Campaign,
    space: SearchSpace,
    *,
    belief: CampaignBelief,
    cost: TrialCost,
) -> Proposer:
    """Return the proposer of a campaign's trials, which also evaluates them.

    Args:
        space: of the campaign.
        belief: the campaign's belief about its machine.
        cost: of its trials.
    """
    request = campaign.request
    return Proposer(
        space,
        objective=request.objective,
        seed=request.seed,
        belief=belief,
        cost=cost,
        headroom_gib=searched_headroom_gib(request, space, prior_of(space)),
        stand_ins=stand_ins_of(campaign.screening, space.transformer),
        pool_nodes=request.pool_nodes,
        method=request.search,
        surrogate=request.surrogate,
    )


def trial_cost(campaign: Campaign, trials: Sequence[Trial]) -> TrialCost:
    """Return the expected seconds for which a trial of this campaign holds its nodes, after
    `trials`."""
    request, protocol = campaign.request, campaign.request.protocol
    on_cluster_s = float(cluster_start_up_s(request.nodes))
    return TrialCost(
        start_up_s=LOCAL_S if request.evaluator == "local" else on_cluster_s,
        warmup_iterations=protocol.warmup_iterations,
        measured_iterations=timed_iterations(campaign, trials),
        time_limit_s=protocol.time_limit_s,
    )


def timed_iterations(campaign: Campaign, trials: Sequence[Trial]) -> int:
    """Return the expected number of timed iterations per GAS.

    It depends on their noise: the average of the campaign's trials so far, without those that were
    given up, or the minimum before any has ended.
    """
    least = campaign.request.protocol.measured_iterations
    counts = [
        len(point.iteration_times_s)
        for trial in without_knobs(trials)
        for point in trial.accumulations
        if point.measured and len(point.iteration_times_s) >= least
    ]
    return round(fmean(counts)) if counts else least
