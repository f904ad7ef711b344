"""What a trial reported, as the store keeps it. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from autotune.measurement import Metrics, accumulations, metrics
from autotune.schemas import Objective, Trial, TrialState
from evaluators.trial import TrialOutcome, TrialStatus
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a campaign's trials train, on what, to what end."""

    transformer: Transformer
    machine: Machine
    objective: Objective


def final_values(
    subject: Subject, strategy: Strategy, outcome: TrialOutcome, *, now: datetime
) -> dict[str, Any]:
    """The columns of a finished trial (see `server.store.tables.TrialRow`)."""
    figures, outcome = _figures(subject, strategy, outcome)
    shown = accumulations(subject.transformer, subject.machine, strategy, outcome.measurements)
    duration_s = max(0.0, outcome.duration_s)
    return {
        "state": TrialState(outcome.status.value),
        "started_at": outcome.started_at,
        "finished_at": min(now, outcome.started_at + timedelta(seconds=duration_s)),
        "duration_s": duration_s,
        "node_hours": strategy.num_nodes * duration_s / SECONDS_PER_HOUR,
        "objective": getattr(figures, subject.objective) if figures else None,
        "metrics": figures.as_dict() if figures else None,
        "measurements": [one.model_dump(mode="json") for one in shown if one.measured],
        "peak_memory_gib": list(outcome.peak_memory_gib),
        "error": storable(outcome.error) if outcome.error else None,
        "log_path": outcome.log_path,
        "host": storable(outcome.host)[:255],
        "versions": dict(outcome.versions),
    }


def never_ran(state: TrialState, error: str, *, now: datetime) -> dict[str, Any]:
    """The columns of a trial that ends without having run, or without a trace of it."""
    return {"state": state, "finished_at": now, "node_hours": 0.0, "error": error}


def _figures(
    subject: Subject, strategy: Strategy, outcome: TrialOutcome
) -> tuple[Metrics | None, TrialOutcome]:
    """The figures of an ok trial. One that says ok but measured too little has crashed."""
    if outcome.status is not TrialStatus.OK:
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
    return None, replace(outcome, status=TrialStatus.CRASHED, error=error, measurements=())


def storable(text: str) -> str:
    """Without what PostgreSQL cannot hold: NUL, and halves of surrogate pairs."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def same_crash(trials: list[Trial], *, times: int) -> str | None:
    """Why to pause: the first trials have all crashed alike; None while that is not so.

    Asked again after every `times` more, so that a campaign that was resumed is not paused at its
    very next trial.
    """
    ended = [t for t in trials if t.state not in {TrialState.PENDING, TrialState.CANCELLED}]
    if not ended or len(ended) % times or {t.state for t in ended} != {TrialState.CRASHED}:
        return None
    errors = {trial.error for trial in ended}
    if len(errors) > 1:
        return None
    return f"all {len(ended)} trials so far crashed in the same way: {ended[0].error}"
