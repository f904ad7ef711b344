"""Rows as wire models."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.schemas import (
    Campaign,
    CampaignCreate,
    MachineShape,
    ModelShape,
    StrategyShape,
    Trial,
    TrialMetrics,
)
from server.store.tables import CampaignRow, TrialRow


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What a campaign's trials add up to. `trials` counts those of the search, of any state."""

    trials: int = 0
    pending: int = 0
    waiting: int = 0
    failures: int = 0
    confirmations: int = 0
    node_hours: float = 0.0
    best_trial: int | None = None
    best_objective: float | None = None


def campaign_of(row: CampaignRow, tally: Tally) -> Campaign:
    return Campaign.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "state": row.state,
            "reason": row.reason,
            "simulated": row.simulated,
            "request": CampaignCreate.model_validate(row.request),
            "model": ModelShape.model_validate(row.model),
            "machine": MachineShape.model_validate(row.machine),
            "created_at": row.created_at,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            **vars(tally),
        }
    )


def trial_of(row: TrialRow) -> Trial:
    return Trial.model_validate(
        {
            "id": row.id,
            "campaign_id": row.campaign_id,
            "number": row.number,
            "purpose": row.purpose,
            "strategy": StrategyShape.model_validate(row.strategy),
            "token": row.token,
            "state": row.state,
            "phase": row.phase,
            "phase_reason": row.phase_reason,
            "job_id": row.job_id,
            "simulated": row.simulated,
            "created_at": row.created_at,
            "started_at": row.started_at,
            "finished_at": row.finished_at,
            "duration_s": row.duration_s,
            "node_hours": row.node_hours,
            "predicted_iteration_time_s": row.predicted_iteration_time_s,
            "predicted_memory_gib": row.predicted_memory_gib,
            "metrics": TrialMetrics.model_validate(row.metrics) if row.metrics else None,
            "accumulations": row.measurements,
            "peak_memory_gib_by_rank": row.peak_memory_gib,
            "joules_per_token": row.joules_per_token,
            "energy_note": row.energy_note,
            "error": row.error,
            "log_path": row.log_path,
            "host": row.host,
            "versions": row.versions,
        }
    )
