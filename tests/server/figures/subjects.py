"""A campaign and trials for figures, made by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Expectation, Trial, TrialMetrics
from server.figures.source import FigureSource, SpaceBelief
from tests.autotune import records
from tests.autotune.records import strategy

START = datetime(2026, 1, 1, tzinfo=UTC)
STRATEGY = strategy(tp=8, pp=1, gas=4)


def campaign(**fields: Any) -> Campaign:
    plain = {"name": "a campaign", "simulated": True, "created_at": START, "started_at": START}
    return records.campaign(**plain | fields)


def trial(number: int, rate: float | None, **fields: Any) -> Trial:
    """Finished `number` minutes after the start, for half a node-hour; out of memory without a
    rate."""
    values: dict[str, Any] = {
        "strategy": STRATEGY,
        "state": TrialState.OOM if rate is None else TrialState.OK,
        "simulated": True,
        "created_at": START,
        "started_at": START,
        "finished_at": START + timedelta(minutes=number),
        "metrics": None if rate is None else metrics(rate),
        "peak_memory_gib_by_rank": [10.0, 12.5],
        "error": "out of memory" if rate is None else None,
    }
    return records.trial(number, **values | fields)


def of_layouts(*layouts: dict[str, Any], failing: int = 0) -> FigureSource:
    """A campaign with a trial of each layout, each faster than the one before; every `failing`th
    ran out of memory."""
    shown = campaign()
    expected = Expectation(
        objective=10.0,
        iteration_time_low_s=0.8,
        iteration_time_high_s=1.25,
        fit_probability=0.9,
        node_hours=0.5,
        best_so_far=None,
        probability_better=None,
    )
    trials = [
        trial(
            n,
            None if failing and n % failing == 0 else 10.0 * n,
            strategy=replace(STRATEGY, **layout),
            predicted_iteration_time_s=1.0,
            predicted_memory_gib=12.0,
            expected=expected,
        )
        for n, layout in enumerate(layouts, start=1)
    ]
    return FigureSource(campaign=shown, trials=trials, belief=SpaceBelief.of(shown, trials))


def metrics(rate: float) -> TrialMetrics:
    return TrialMetrics(
        gradient_accumulation_steps=4,
        global_batch_size=8,
        iteration_time_s=1.0,
        iteration_time_spread_s=0.01,
        measured=True,
        tokens_per_s=rate,
        tokens_per_s_per_gpu=rate / 16,
        tokens_per_node_hour=rate * 1800,
        model_tflops_per_gpu=1.0,
        hardware_tflops_per_gpu=1.3,
        mfu=0.3,
        hfu=0.4,
        peak_memory_gib=12.5,
        loss=None,
    )
