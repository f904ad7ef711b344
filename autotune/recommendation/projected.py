"""Layouts that were measured on fewer nodes than they are to train on, and what is projected of
them there."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from autotune.calibration import Calibration, Observation, observations_of
from autotune.calibration.calibration import Z
from autotune.calibration.projection import projected
from autotune.cost_model.columns import Columns
from autotune.measurement import AccumulationMeasurement, metrics
from autotune.objectives import keeps_headroom
from autotune.recommendation.ranking import FAILED_STATES, Contender, contenders
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import Campaign, Trial, TrialMetrics, TrialState
from autotune.search.pairs import Projections, pairs_of
from autotune.search.trial import SearchTrial
from autotune.trial_energy import power_factor_of
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TOLD_STATES = FAILED_STATES | {TrialState.OK}
"""Ends of a trial in full after which nothing need be projected."""


def all_contenders(campaign: Campaign, trials: Sequence[Trial]) -> list[Contender]:
    """Return all contenders: those measured on their own nodes as `contenders` ranks them, then
    those projected; those that leave too little memory after all that leave it, and last those that
    failed when they were measured once more."""
    every = [*contenders(campaign, trials), *projected_contenders(campaign, trials)]
    return sorted(every, key=lambda each: (each.failed_confirmation, not each.keeps_headroom))


def projected_contenders(campaign: Campaign, trials: Sequence[Trial]) -> list[Contender]:
    """Return the layouts that were timed on few nodes and not on their own, the best first; none
    where a layout that was measured both ways contradicts what was projected of it."""
    told = {
        strategy_of(trial.strategy)
        for trial in trials
        if trial.stands_for_nodes is None and trial.state in TOLD_STATES
    }
    few: dict[Strategy, list[Trial]] = {}
    for trial in trials:
        if trial.stands_for_nodes and trial.metrics and _full(trial) not in told:
            few.setdefault(_full(trial), []).append(trial)
    if not few:
        return []
    transformer, machine = transformer_of(campaign.model), machine_of(campaign.machine)
    calibration = _calibration(
        machine, tuple(observations_of(transformer, trials, machine=machine))
    )
    projections = _projections(transformer, machine, trials)
    if projections.contradicted:
        return []
    found = []
    for strategy, same in few.items():
        figures = _projection(transformer, calibration, same[-1], strategy, error=projections.error)
        contender = Contender(
            strategy=strategy,
            trials=tuple(same),
            objective=campaign.request.objective,
            failed_confirmation=False,
            keeps_headroom=keeps_headroom(campaign, figures),
            projection=figures,
        )
        found.append(contender)
    return sorted(found, key=lambda contender: (-contender.rate, contender.strategy))


@lru_cache(maxsize=16)
def _calibration(machine: Machine, observations: tuple[Observation, ...]) -> Calibration:
    return Calibration.of(machine, observations)


def _full(trial: Trial) -> Strategy:
    return strategy_of(trial.strategy.model_copy(update={"num_nodes": trial.stands_for_nodes}))


def _projections(
    transformer: Transformer, machine: Machine, trials: Sequence[Trial]
) -> Projections:
    timed = [trial for trial in trials if trial.metrics is not None]
    pairs = pairs_of(
        [
            SearchTrial(
                strategy=strategy_of(trial.strategy),
                state="ok",
                iteration_time_s=trial.metrics.iteration_time_s,
                stands_for=trial.stands_for_nodes,
            )
            for trial in timed
            if trial.metrics is not None
        ]
    )
    if not pairs:
        return Projections()
    both = {wide.strategy for _, wide in pairs}
    others = [t for t in timed if t.stands_for_nodes or strategy_of(t.strategy) not in both]
    before = _calibration(machine, tuple(observations_of(transformer, others, machine=machine)))
    return Projections.of(pairs, before, transformer)


def _projection(
    transformer: Transformer,
    calibration: Calibration,
    trial: Trial,
    strategy: Strategy,
    *,
    error: float,
) -> TrialMetrics:
    """Return the figures of a strategy from a trial of it on few nodes."""
    machine = calibration.machine
    narrow, wide = (
        Columns.of(transformer, Lattice.of([each], gpus_per_node=machine.gpus_per_node))
        for each in (strategy_of(trial.strategy), strategy)
    )
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
        needs = [calibration.memory.mean(each)[0] for each in (narrow, wide)]
        peak *= float(np.exp(needs[1] - needs[0]))
    power_factor = power_factor_of(
        transformer,
        machine,
        strategy_of(trial.strategy),
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
