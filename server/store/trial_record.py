"""A trial's row as the wire model, whichever version wrote it."""

from __future__ import annotations

from functools import cache
from typing import TypeVar, cast

from autotune.measurement import SECONDS_PER_HOUR
from autotune.schemas import StrategyShape, Trial, TrialMetrics
from autotune.schemas.wire import Wire
from server.store.tables import TrialRow

Model = TypeVar("Model", bound=Wire)


def trial_of(row: TrialRow) -> Trial:
    """Return a row as the wire model."""
    trial = _validated(row)
    return _compact(
        trial.model_copy(
            update={
                "strategy": _compact(trial.strategy),
                "accumulations": [_compact(each) for each in trial.accumulations],
                "expected": trial.expected and _compact(trial.expected),
                "metrics": trial.metrics and _compact(trial.metrics),
            }
        )
    )


def _compact(model: Model) -> Model:
    """Return the model with one set of given fields for all of its class: with a set of its own in
    each model, a kept trial takes 9 kB instead of 3."""
    kind = type(model)
    return cast("Model", kind.model_construct(_fields_set=_fields(kind), **dict(model)))


@cache
def _fields(kind: type[Wire]) -> set[str]:
    return set(kind.model_fields)


def _validated(row: TrialRow) -> Trial:
    return Trial.model_validate(
        {
            "id": row.id,
            "campaign_id": row.campaign_id,
            "number": row.number,
            "purpose": row.purpose,
            "strategy": StrategyShape.model_validate(row.strategy),
            "stands_for_nodes": row.stands_for_nodes,
            "num_layers": row.num_layers,
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
            "expected": row.expected,
            "metrics": _metrics(row) if row.metrics else None,
            "accumulations": row.measurements,
            "peak_memory_gib_by_rank": row.peak_memory_gib,
            "gpu_joules_per_token": row.gpu_joules_per_token,
            "energy_note": row.energy_note,
            "error": row.error,
            "log_path": row.log_path,
            "host": row.host,
            "versions": row.versions,
        }
    )


def _metrics(row: TrialRow) -> TrialMetrics:
    """Return a row's figures; those of earlier versions lack what follows from the others."""
    figures = dict(row.metrics or {})
    rate = figures["tokens_per_s"] * SECONDS_PER_HOUR / row.strategy["num_nodes"]
    return TrialMetrics.model_validate({"tokens_per_node_hour": rate} | figures)
