"""What a trial reported, as the store keeps it. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from autotune.measurement import accumulations, metrics
from autotune.resolution import machine_of, transformer_of
from autotune.schemas import Campaign, Objective, Trial, TrialMetrics, TrialState
from evaluators.trial import TrialOutcome, TrialProgress
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SECONDS_PER_HOUR = 3600.0
LONGEST_NAME = 255
ENDED_STANDING: dict[str, Any] = {"phase": None, "phase_reason": ""}


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a campaign's trials train, on what, to what end."""

    transformer: Transformer
    machine: Machine
    objective: Objective

    @classmethod
    def of(cls, campaign: Campaign) -> Subject:
        return cls(
            transformer=transformer_of(campaign.model),
            machine=machine_of(campaign.machine),
            objective=campaign.request.objective,
        )


def final_values(
    subject: Subject, strategy: Strategy, outcome: TrialOutcome, *, now: datetime
) -> dict[str, Any]:
    """The columns of a finished trial (see `server.store.tables.TrialRow`)."""
    figures, outcome = _figures(subject, strategy, outcome)
    shown = accumulations(subject.transformer, subject.machine, strategy, outcome.measurements)
    duration_s = max(0.0, outcome.duration_s)
    return {
        "state": outcome.status,
        "started_at": outcome.started_at,
        "finished_at": min(now, outcome.started_at + timedelta(seconds=duration_s)),
        "duration_s": duration_s,
        "node_hours": strategy.num_nodes * duration_s / SECONDS_PER_HOUR,
        "objective": getattr(figures, subject.objective) if figures else None,
        "metrics": figures.model_dump() if figures else None,
        "measurements": [one.model_dump(mode="json") for one in shown if one.measured],
        "peak_memory_gib": list(outcome.peak_memory_gib),
        "error": storable(outcome.error) if outcome.error else None,
        "log_path": outcome.log_path,
        "host": storable(outcome.host)[:LONGEST_NAME],
        "versions": dict(outcome.versions),
        "job_id": _name(outcome.job_id),
        "joules_per_token": _positive(outcome.joules_per_token),
        "energy_note": storable(outcome.energy_note),
        **ENDED_STANDING,
    }


def standing_values(standing: TrialProgress | None) -> dict[str, Any]:
    """The columns of a trial that has not ended; None for one that nothing runs or queues now."""
    if standing is None:
        return {**ENDED_STANDING, "job_id": None, "host": None}
    return {
        "phase": standing.phase,
        "phase_reason": storable(standing.reason),
        "job_id": _name(standing.job_id),
        "host": _name(standing.host),
    }


def differs(trial: Trial, values: Mapping[str, Any]) -> bool:
    """Whether some of these columns are otherwise in the trial's row."""
    return any(getattr(trial, name) != value for name, value in values.items())


def _name(text: str | None) -> str | None:
    return storable(text)[:LONGEST_NAME] if text else None


def _positive(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) and figure > 0 else None


def never_ran(state: TrialState, error: str, *, now: datetime) -> dict[str, Any]:
    """The columns of a trial that ends without having run, or without a trace of it."""
    ended = {"state": state, "finished_at": now, "node_hours": 0.0, "error": error}
    return ended | ENDED_STANDING


def _figures(
    subject: Subject, strategy: Strategy, outcome: TrialOutcome
) -> tuple[TrialMetrics | None, TrialOutcome]:
    """The figures of an ok trial. One that says ok but measured too little has crashed."""
    if outcome.status is not TrialState.OK:
        return None, replace(outcome, measurements=())
    loss = outcome.loss if outcome.loss is not None and math.isfinite(outcome.loss) else None
    try:
        found = metrics(
            subject.transformer,
            subject.machine,
            strategy,
            outcome.measurements,
            peak_memory_gib=max(outcome.peak_memory_gib, default=None),
            loss=loss,
        )
        usable = math.isfinite(found.tokens_per_s) and found.tokens_per_s > 0
    except (ValueError, ZeroDivisionError):
        usable = False
    if usable:
        return found, outcome
    error = "the trial ended well, but its measurements give no iteration time"
    return None, replace(outcome, status=TrialState.CRASHED, error=error, measurements=())


def storable(text: str) -> str:
    """Without what PostgreSQL cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()
