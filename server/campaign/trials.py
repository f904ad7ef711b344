"""Trials as they are stored: about to start, and ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from autotune.schemas import (
    Accumulation,
    Expectation,
    StrategyShape,
    TrialMetrics,
    TrialPower,
    TrialPurpose,
    TrialState,
)


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is about to start, with what is expected of it."""

    strategy: StrategyShape
    purpose: TrialPurpose
    predicted_iteration_time_s: float
    predicted_memory_gib: float
    expected: Expectation
    stands_for_nodes: int | None = None
    num_layers: int | None = None


@dataclass(frozen=True, kw_only=True)
class FinishedTrial:
    """How a trial that ran has ended.

    Attributes:
        node_hours: what it cost, in hours of one node.
        accumulations: the measured points alone.
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
    """How a trial has ended that never ran, or left no trace of having run. It cost nothing."""

    state: TrialState
    finished_at: datetime
    error: str
