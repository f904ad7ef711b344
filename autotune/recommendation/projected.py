"""Projections of layouts that were measured on fewer nodes or with fewer layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.calibration import Z
from autotune.calibration.observations import columns_of
from autotune.calibration.projection import projected
from autotune.cost_model.columns import Columns
from autotune.measurement.energy import power_factor_of
from autotune.measurement.metrics import AccumulationMeasurement, metrics
from autotune.measurement.objectives import campaign_headroom_gib, keeps_headroom
from autotune.recommendation.ranking import Contender, contenders, safest_first
from autotune.schemas.campaigns import Campaign
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.schemas.trials import CONCLUSIVE, Trial, TrialMetrics
from autotune.search.campaign_belief import CampaignBelief, belief_without_start
from autotune.search.trial import ended_of, merged, search_trials, unfinished
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


def all_contenders(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief | None = None
) -> list[Contender]:
    """Return all contenders, best first: those measured on their own nodes as `contenders` ranks
    them, then projected ones; those without the headroom after those with it; those that failed
    when measured again last.

    A projected layout that the available nodes cannot measure in full comes first if it is clearly
    above all measured ones. Of those level with the first, the safest comes first (`safest_first`).

    Args:
        belief: the campaign's; None if these trials are all that is known.
    """
    belief = belief or belief_without_start(campaign)
    measured = contenders(campaign, trials)
    projected = projected_contenders(campaign, trials, belief=belief)
    ahead = [
        each
        for each in projected
        if each.strategy.num_nodes > nodes_at_hand(campaign)
        and all(each.beats(other) for other in measured)
    ]
    every = [*ahead, *measured, *(each for each in projected if each not in ahead)]
    every.sort(key=lambda each: (each.failed_confirmation, not each.keeps_headroom))
    return safest_first(campaign, every)


def nodes_at_hand(campaign: Campaign) -> int:
    return campaign.request.pool_nodes or campaign.request.nodes


def projected_contenders(
    campaign: Campaign, trials: Sequence[Trial], *, belief: CampaignBelief
) -> list[Contender]:
    """Return layouts that were timed only on few nodes or with few layers, best first; none if a
    layout measured both ways contradicts its projection."""
    measured_in_full = {
        trial.strategy
        for trial in trials
        if trial.stands_for_nodes is None and trial.state in CONCLUSIVE
    }
    few: dict[Strategy, list[Trial]] = {}
    for trial in trials:
        if trial.stands_for_nodes and trial.metrics:
            full = unfinished(trial).full
            if full not in measured_in_full:
                few.setdefault(full, []).append(trial)
    if not few:
        return []
    ended = tuple(merged(search_trials(ended_of(trials))))
    projections = belief.projections(ended)
    if projections.contradicted:
        return []
    transformer, calibration = belief.transformer, belief.calibration(ended)
    found = []
    for strategy, same in few.items():
        figures = _projection(transformer, calibration, same[-1], strategy, error=projections.error)
        contender = Contender(
            strategy=strategy,
            trials=tuple(same),
            objective=campaign.request.objective,
            failed_confirmation=False,
            keeps_headroom=keeps_headroom(campaign, figures)
            and (same[-1].num_layers is None or _fits(campaign, calibration, strategy)),
            projection=figures,
        )
        found.append(contender)
    return sorted(found, key=lambda contender: (-contender.rate, contender.strategy))


def _fits(campaign: Campaign, calibration: Calibration, strategy: Strategy) -> bool:
    columns = _columns(campaign.model, calibration.machine, strategy)
    headroom_gib = campaign_headroom_gib(campaign)
    return bool(calibration.fit_probability(columns, headroom_gib=headroom_gib)[0] >= LIKELY_TO_FIT)


def _columns(transformer: Transformer, machine: Machine, strategy: Strategy) -> Columns:
    return Columns.of(transformer, Lattice.of([strategy], gpus_per_node=machine.gpus_per_node))


def _projection(
    transformer: Transformer,
    calibration: Calibration,
    trial: Trial,
    strategy: Strategy,
    *,
    error: float,
) -> TrialMetrics:
    machine, ran = calibration.machine, unfinished(trial).run(transformer)
    narrow, wide = columns_of([ran], machine), _columns(transformer, machine, strategy)
    measured_s = trial.metrics.iteration_time_s if trial.metrics else 1.0
    mean, variance = projected(
        calibration.time, narrow=narrow, wide=wide, log_time=np.log([measured_s])
    )
    seconds = float(np.exp(mean[0] + error))
    measurement = AccumulationMeasurement(
        gradient_accumulation_steps=strategy.gradient_accumulation_steps,
        iteration_times_s=(seconds,),
    )
    peak = max(trial.peak_memory_gib_by_rank, default=None)
    if peak is not None:
        needs = [calibration.memory.mean(each, labelled=True)[0] for each in (narrow, wide)]
        peak *= float(np.exp(needs[1] - needs[0]))
    power_factor = power_factor_of(
        ran.transformer,
        machine,
        ran.strategy,
        iteration_time_s=measured_s,
        tokens_per_joule=trial.metrics.tokens_per_joule if trial.metrics else None,
    )
    figures = metrics(
        transformer,
        machine,
        strategy,
        [measurement],
        peak_memory_gib=peak,
        power_factor=power_factor,
    )
    spread_s = seconds * float(np.expm1(Z * np.sqrt(variance[0])))
    return figures.model_copy(update={"measured": False, "iteration_time_spread_s": spread_s})
