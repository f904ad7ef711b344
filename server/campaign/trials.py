"""Trials as they are stored: before they start, and after they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autotune.schemas.choices import TrialState
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import Accumulation, Expectation, TrialMetrics, TrialPower
from autotune.schemas.wire import TrialPurpose


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is about to start, with its prediction."""

    strategy: StrategyShape
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
    power: TrialPower | None = None
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
