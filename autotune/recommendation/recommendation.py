"""Recommendation of a campaign: the strategy to train with, and the cost of the training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median
from types import MappingProxyType

from autotune.knobs.phase import knob_findings, repeated_noise, without_knobs
from autotune.measurement.energy import (
    JOULES_PER_MWH,
    joules_per_token,
    power_factor_of,
)
from autotune.measurement.metrics import SECONDS_PER_DAY, accumulations
from autotune.prediction.model_needs import TOKENS_PER_PARAMETER
from autotune.recommendation.baseline import baseline_result, exceeds_spread, training_saving
from autotune.recommendation.caveats import caveats
from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import (
    Contender,
    fastest_without_headroom,
    level_runner_up,
    measured_accumulations,
    pareto_fronts,
)
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.recommendations import Ranked, Recommendation, TrainingCost
from autotune.schemas.trials import FAILURES, Accumulation, Trial
from autotune.search import CampaignBelief
from autotune.search.trial import ATTEMPTS, may_be_tried_again
from search_spaces.knob import Knob
from search_spaces.strategy import Strategy

RUNNERS_UP = 4

UNFINISHED = frozenset(
    {CampaignState.QUEUED, CampaignState.RUNNING, CampaignState.CONFIRMING, CampaignState.PAUSED}
)


def strategies_to_confirm(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
) -> list[Strategy]:
    """Return the strategies to confirm, best first; empty when all are confirmed.

    These are the `protocol.confirmations` best layouts by measurement or projection. A confirmation
    that runs or has succeeded counts even if the ranking has changed since: a later release may
    project another layout ahead. A lost one, as after a node failure, is repeated
    (`may_be_tried_again`). If one failed or was given up, the next in line is taken. When all have
    ended, an unconfirmed layout that is clearly above the best confirmed one is confirmed, too. No
    more than twice as many layouts are taken in all.
    """
    wanted = campaign.request.protocol.confirmations
    searched = [t for t in trials if t.purpose not in {"confirmation", "knob"}]
    confirmations = [t for t in trials if t.purpose == "confirmation"]
    by_layout: dict[tuple[object, ...], list[Trial]] = {}
    for trial in confirmations:
        by_layout.setdefault(_layout(trial), []).append(trial)
    closed = {layout for layout, same in by_layout.items() if not may_be_tried_again(same)}
    pending_or_ok = {TrialState.PENDING, TrialState.OK}
    standing = {_layout(t) for t in confirmations if t.state in pending_or_ok}
    ranked = _within_bounds(all_contenders(campaign, searched, belief=belief))
    ranked = sorted(ranked, key=lambda contender: -contender.rate)
    missing = [
        contender.strategy for contender in ranked if contender.strategy.layout_key() not in closed
    ][: max(0, wanted - len(standing))]
    if not missing and not any(t.state is TrialState.PENDING for t in confirmations):
        every = all_contenders(campaign, trials, belief=belief)
        above = _above_the_confirmed(_within_bounds(every))
        missing = [strategy for strategy in above if strategy.layout_key() not in closed]
    return missing[: max(0, 2 * wanted - len(closed))]


def repeats_best(campaign: Campaign) -> bool:
    """Return whether the best layout is confirmed twice, to measure the noise."""
    return not campaign.simulated and campaign.request.protocol.confirmations > 0


def layout_to_repeat(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
) -> Strategy | None:
    """Return the best layout until one has been confirmed twice, which shows what is noise; None
    from then on, and after ATTEMPTS."""
    if not repeats_best(campaign) or repeated_noise(trials) is not None:
        return None
    ranked = all_contenders(campaign, trials, belief=belief)
    if not ranked or not ranked[0].confirmed:
        return None
    best = ranked[0].strategy
    same = [t for t in trials if t.purpose == "confirmation" and t.strategy == best]
    return best if len(same) < ATTEMPTS else None


def _within_bounds(ranked: Sequence[Contender]) -> Sequence[Contender]:
    return [contender for contender in ranked if contender.keeps_headroom] or ranked


def _above_the_confirmed(ranked: Sequence[Contender]) -> list[Strategy]:
    confirmed = [contender for contender in ranked if contender.confirmed]
    fresh = [
        contender
        for contender in ranked
        if not contender.confirmed and not contender.failed_confirmation
    ]
    fastest = max(fresh, key=lambda contender: contender.rate, default=None)
    if confirmed and fastest is not None and fastest.beats(confirmed[0]):
        return [fastest.strategy]
    return []


def recommend(
    campaign: Campaign,
    trials: Sequence[Trial],
    *,
    belief: CampaignBelief | None = None,
    knobs: Mapping[str, Knob] = MappingProxyType({}),
    artefacts: Sequence[str] = (),
) -> Recommendation | None:
    """Return the recommendation for trials in any order; None without a successful trial.

    Args:
        belief: the campaign's; None if these trials are all that is known.
        knobs: of its trainer and cluster.
        artefacts: names of the files that come with it.
    """
    ranked = all_contenders(campaign, trials, belief=belief)
    if not ranked:
        return None
    best = ranked[0]
    baseline, speedup = baseline_result(campaign, trials, belief=belief)
    training = _training(campaign, best)
    layouts = without_knobs(trials)
    node_hours = sum(trial.node_hours or 0.0 for trial in trials)
    fuller = fastest_without_headroom(ranked)
    second = level_runner_up(ranked)
    knobs_on = partial(
        knob_findings,
        trials=trials,
        knobs=knobs,
        training_node_hours=planned_node_hours(campaign, training),
    )
    return Recommendation(
        campaign_id=campaign.id,
        provisional=_is_provisional(campaign, confirmed=best.confirmed),
        simulated=campaign.simulated,
        objective=campaign.request.objective,
        best=_ranked(campaign, best, best=best, rank=1),
        fuller=None if fuller is None else _ranked(campaign, fuller, best=best, rank=0),
        runners_up=[
            _ranked(campaign, contender, best=best, rank=rank)
            for rank, contender in enumerate(ranked[1 : 1 + RUNNERS_UP], start=2)
        ],
        pareto=pareto_fronts(ranked),
        baseline=baseline,
        speedup_over_baseline=speedup,
        training=training,
        saving=training_saving(
            campaign, best, trials, tokens=training.tokens, node_hours=node_hours
        )
        if exceeds_spread(baseline)
        else None,
        accumulations=_accumulations(campaign, best, layouts),
        trials=len(trials),
        failures=sum(trial.state in FAILURES for trial in trials),
        node_hours=node_hours,
        noise_floor=repeated_noise(trials),
        knobs=knobs_on(best.strategy),
        runner_up_knobs=None if second is None else knobs_on(second.strategy),
        caveats=caveats(campaign, ranked, layouts),
        artefacts=list(artefacts),
    )


def as_of_now(
    recommendation: Recommendation, campaign: Campaign, trials: Sequence[Trial]
) -> Recommendation:
    provisional = _is_provisional(campaign, confirmed=recommendation.best.confirmed)
    return recommendation.model_copy(update={"provisional": provisional, "trials": len(trials)})


def _is_provisional(campaign: Campaign, *, confirmed: bool) -> bool:
    return campaign.state in UNFINISHED or not confirmed


def _layout(trial: Trial) -> tuple[object, ...]:
    return trial.strategy.layout_key()


def _ranked(campaign: Campaign, contender: Contender, *, best: Contender, rank: int) -> Ranked:
    peak = contender.metrics.peak_memory_gib
    own = contender.trials if contender.projection is None else ()
    predicted = [t.predicted_iteration_time_s for t in own]
    drawn = [t.gpu_joules_per_token for t in own if t.gpu_joules_per_token is not None]
    return Ranked(
        rank=rank,
        trial_numbers=[trial.number for trial in contender.trials],
        strategy=contender.strategy,
        metrics=contender.metrics,
        predicted_iteration_time_s=next((p for p in predicted if p is not None), None),
        relative_to_best=contender.rate / best.rate,
        significant=None if contender is best else best.beats(contender),
        confirmed=contender.confirmed,
        failed_confirmation=contender.failed_confirmation,
        keeps_headroom=contender.keeps_headroom,
        memory_headroom_gib=None if peak is None else campaign.machine.memory_gib - peak,
        joules_per_token=contender.joules_per_token,
        gpu_joules_per_token=median(drawn) if drawn else None,
        projected_from_nodes=contender.projected_from_nodes,
        projected_from_layers=contender.projected_from_layers,
    )


def training_cost(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
) -> TrainingCost | None:
    ranked = all_contenders(campaign, trials, belief=belief)
    return _training(campaign, ranked[0]) if ranked else None


def planned_node_hours(campaign: Campaign, training: TrainingCost | None) -> float | None:
    """Return the node-hours of the training in the budget; None without one."""
    return training.node_hours if training and campaign.request.budget.train_tokens else None


def training_tokens(campaign: Campaign) -> float:
    request = campaign.request
    tokens = request.budget.train_tokens or request.tokens
    return tokens or TOKENS_PER_PARAMETER * campaign.model.parameters


def _training(campaign: Campaign, best: Contender) -> TrainingCost:
    figures, tokens = best.metrics, training_tokens(campaign)
    tokens_per_iteration = figures.global_batch_size * campaign.model.seq_length
    iterations = math.ceil(tokens / tokens_per_iteration)
    seconds = iterations * figures.iteration_time_s
    nodes = best.strategy.num_nodes
    joules = best.joules_per_token
    gpu_joules = _gpu_joules_per_token(campaign, best)
    trained = iterations * tokens_per_iteration
    return TrainingCost(
        tokens=tokens,
        iterations=iterations,
        days=seconds / SECONDS_PER_DAY,
        node_hours=nodes * seconds / 3600.0,
        energy_mwh=None if joules is None else trained * joules / JOULES_PER_MWH,
        gpu_energy_mwh=None if gpu_joules is None else trained * gpu_joules / JOULES_PER_MWH,
        energy_sampled=figures.energy_sampled,
        assumed=not (campaign.request.budget.train_tokens or campaign.request.tokens),
    )


def _gpu_joules_per_token(campaign: Campaign, contender: Contender) -> float | None:
    """Return the GPUs' part of what a token takes on all nodes; by the power figures where
    the energy of all nodes is not known."""
    transformer, machine = campaign.model, campaign.machine
    figures, strategy = contender.metrics, contender.strategy
    seconds = figures.iteration_time_s
    factor = power_factor_of(
        transformer,
        machine,
        strategy,
        iteration_time_s=seconds,
        tokens_per_joule=figures.tokens_per_joule,
    )
    return joules_per_token(
        transformer,
        machine,
        strategy,
        iteration_time_s=seconds,
        timed=(),
        power_factor=factor,
        hosts=False,
    )


def _accumulations(
    campaign: Campaign, best: Contender, trials: Sequence[Trial]
) -> list[Accumulation]:
    layout = best.strategy.layout_key()
    measurements = measured_accumulations(
        t for t in trials if t.num_layers is None and _layout(t) == layout
    )
    return accumulations(campaign.model, campaign.machine, best.strategy, measurements)
