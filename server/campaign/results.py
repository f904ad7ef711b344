"""Trials as the store keeps them: new ones with predictions, ended ones with results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autotune.measurement.metrics import SECONDS_PER_HOUR, accumulations, impossible_time, metrics
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective, TrialState
from autotune.schemas.resolution import subject_of
from autotune.schemas.trials import (
    Accumulation,
    Expectation,
    Trial,
    TrialMetrics,
)
from autotune.schemas.wire import TrialPurpose
from evaluators.trial import TrialOutcome
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is about to start, with its prediction."""

    strategy: Strategy
    purpose: TrialPurpose
    predicted_iteration_time_s: float
    predicted_memory_gib: float
    expected: Expectation
    stands_for_nodes: int | None = None
    num_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class FinishedTrial:
    """The end of a trial that ran.

    Attributes:
        node_hours: its cost.
        accumulations: the measured points only.
    """

    state: TrialState
    started_at: datetime
    finished_at: datetime
    duration_s: float
    node_hours: float
    metrics: TrialMetrics | None = None
    accumulations: Sequence[Accumulation] = ()
    peak_memory_gib_by_rank: Sequence[float] = ()
    gpu_joules_per_token: float | None = None
    energy_note: str = ""
    error: str | None = None
    log_path: str | None = None
    host: str = ""
    job_id: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class UnrunTrial:
    """The end of a trial that never ran, or left no trace. It has no cost."""

    state: TrialState
    finished_at: datetime
    error: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a campaign's trials train, on which machine, and the objective."""

    transformer: Transformer
    machine: Machine
    objective: Objective

    @classmethod
    def of(cls, campaign: Campaign) -> Workload:
        transformer, machine = subject_of(campaign.model, campaign.machine)
        return cls(
            transformer=transformer,
            machine=machine,
            objective=campaign.request.objective,
        )

    def of_trial(self, trial: Trial) -> Workload:
        return replace(self, transformer=self.transformer.with_layers(trial.num_layers))


def finished_trial(
    workload: Workload,
    strategy: Strategy,
    outcome: TrialOutcome,
    *,
    now: datetime,
    power_factor: float = 1.0,
) -> FinishedTrial:
    """Return what the store keeps of an ended trial.

    Args:
        power_factor: ratio of GPU power to the machine's power figures, used if the trial did not
            sample power.
    """
    figures, outcome = _figures(workload, strategy, outcome, power_factor=power_factor)
    points = accumulations(workload.transformer, workload.machine, strategy, outcome.measurements)
    duration_s = max(0.0, outcome.duration_s)
    return FinishedTrial(
        state=outcome.status,
        started_at=outcome.started_at,
        finished_at=min(now, outcome.started_at + timedelta(seconds=duration_s)),
        duration_s=duration_s,
        node_hours=strategy.num_nodes * duration_s / SECONDS_PER_HOUR,
        metrics=figures,
        accumulations=[point for point in points if point.measured],
        peak_memory_gib_by_rank=outcome.peak_memory_gib,
        gpu_joules_per_token=_sampled(outcome),
        energy_note=outcome.energy_note,
        error=outcome.error,
        log_path=outcome.log_path,
        host=outcome.host,
        job_id=outcome.job_id,
        versions=outcome.versions,
    )


def _sampled(outcome: TrialOutcome) -> float | None:
    energy = outcome.gpu_joules_per_token
    return energy if energy and math.isfinite(energy) and energy > 0 else None


def _figures(
    workload: Workload, strategy: Strategy, outcome: TrialOutcome, *, power_factor: float
) -> tuple[TrialMetrics | None, TrialOutcome]:
    """Return the metrics of a trial with status ok. One with too few measurements, or with
    impossible times, counts as crashed."""
    if outcome.status is not TrialState.OK:
        return None, replace(outcome, measurements=())
    measured = workload.transformer, workload.machine, strategy, outcome.measurements
    if impossible := impossible_time(*measured):
        return None, _crashed(outcome, impossible)
    loss = outcome.loss if outcome.loss is not None and math.isfinite(outcome.loss) else None
    counted = outcome.trainer_parameters
    try:
        figures = metrics(
            *measured,
            peak_memory_gib=max(outcome.peak_memory_gib, default=None),
            peak_allocated_gib=outcome.peak_allocated_gib,
            loss=loss,
            first_losses=[each if math.isfinite(each) else None for each in outcome.first_losses],
            trainer_parameters=counted if counted and math.isfinite(counted) else None,
            confirmed=outcome.confirmed,
            routing=outcome.routing,
            gpu_joules_per_token=_sampled(outcome),
            power_factor=power_factor,
        )
        usable = math.isfinite(figures.tokens_per_s) and figures.tokens_per_s > 0
    except (ValueError, ZeroDivisionError):
        usable = False
    if usable:
        return figures, outcome
    error = "the trial ended well, but its measurements give no iteration time"
    return None, _crashed(outcome, error)


def _crashed(outcome: TrialOutcome, error: str) -> TrialOutcome:
    return replace(outcome, status=TrialState.CRASHED, error=error, measurements=())
