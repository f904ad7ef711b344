"""What a trial costs a campaign, and whether it is worth that. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.calibration import Observation
from autotune.recommendation import all_contenders, place, training_node_hours
from autotune.schemas import Campaign, Trial
from autotune.search import (
    Proposal,
    Proposer,
    SearchTrial,
    TrialCost,
    is_worth_confirming,
    reason_to_spare,
)
from autotune.start_up import LOCAL_S, cluster_start_up_s
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


def reason_to_spare_trial(
    campaign: Campaign, trials: Sequence[Trial], proposal: Proposal
) -> str | None:
    """Return why a trial is not worth its node-hours; None without a training to hold it
    against."""
    budget = campaign.request.budget
    training = training_node_hours(campaign, trials)
    if not budget.stop_early or budget.train_tokens is None or training is None:
        return None
    if proposal.expected_saving is None:
        return None
    return reason_to_spare(
        proposal.node_hours,
        saving=proposal.expected_saving,
        training_node_hours=training,
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
    """Return the best itself, where it is wanted, and those that may still turn out better.

    Args:
        known: the trials as the proposer reads them.
    """
    request = campaign.request
    ranked = sorted(all_contenders(campaign, trials), key=place)
    seconds = {each.strategy.layout_key(): each.metrics.iteration_time_s for each in ranked}
    best = next(iter(seconds), None)
    others = [strategy for strategy in wanted if strategy.layout_key() != best]
    if not others:
        return list(wanted)
    training = training_node_hours(campaign, trials) if request.budget.train_tokens else None
    cost = trial_cost(campaign)
    rivals = proposer.rivals(known, ranked[0].strategy, others)
    unworthy = {
        strategy
        for strategy, rival in zip(others, rivals, strict=True)
        if not is_worth_confirming(
            rival,
            node_hours=cost.confirmation_node_hours(
                strategy, iteration_time_s=seconds[strategy.layout_key()]
            ),
            training_node_hours=training,
        )
    }
    return [strategy for strategy in wanted if strategy not in unworthy]


def proposer_of(
    campaign: Campaign, space: SearchSpace, *, earlier: Sequence[Observation]
) -> Proposer:
    """Return what proposes a campaign's trials, and judges what they come to.

    Args:
        space: that the campaign searches.
        earlier: what trials of other campaigns have shown.
    """
    request = campaign.request
    return Proposer(
        space,
        objective=request.objective,
        seed=request.seed,
        earlier=earlier,
        cost=trial_cost(campaign),
        headroom_gib=request.min_headroom_gib,
        screen_nodes=campaign.screening.nodes if campaign.screening else None,
    )


def trial_cost(campaign: Campaign) -> TrialCost:
    """Return how long a trial of this campaign is expected to hold its nodes."""
    request, protocol = campaign.request, campaign.request.protocol
    on_cluster_s = float(cluster_start_up_s(request.nodes))
    return TrialCost(
        start_up_s=LOCAL_S if request.evaluator == "local" else on_cluster_s,
        iterations=protocol.warmup_iterations + protocol.measured_iterations,
        time_limit_s=protocol.time_limit_s,
    )
