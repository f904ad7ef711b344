"""Trials as a table: one row each, under flat names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from autotune.schemas.trials import Expectation, Trial, TrialMetrics
from search_spaces.dimensions import BY_NAME, DIMENSIONS, OF_EXPERTS

_OWN = ("number", "purpose", "state", "simulated", "created_at", "started_at", "finished_at")
_COSTS = ("duration_s", "node_hours", "predicted_iteration_time_s", "predicted_memory_gib")
_REST = ("gpu_joules_per_token", "energy_note", "error", "host", "job_id", "token")
_FIGURES = tuple(
    name for name in TrialMetrics.model_fields if name != "gradient_accumulation_steps"
)
_EXPECTED = tuple(f"expected_{name}" for name in Expectation.model_fields)
_STANDS_FOR = ("stands_for_nodes", "num_layers")
COLUMNS = (
    *_OWN,
    *(name for name in DIMENSIONS if name not in OF_EXPERTS),
    *_STANDS_FOR,
    *_FIGURES,
    *_COSTS,
    *_EXPECTED,
    *_REST,
)
"""The trial's own fields, its strategy's, its figures (None where it gave none), and what was
expected of it before, under `expected_…`. After them come the dimensions that some trials have:
those of experts, and the trainer's own."""


def row_of(trial: Trial, *, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Return a trial's values by COLUMNS and dimensions of the trainer's own; None for missing
    ones."""
    figures = trial.metrics.model_dump() if trial.metrics else {}
    before = trial.expected.model_dump() if trial.expected else {}
    expected = {f"expected_{name}": value for name, value in before.items()}
    own = {name: getattr(trial, name) for name in (*_OWN, *_STANDS_FOR, *_COSTS, *_REST)}
    of_strategy = {name: trial.strategy.value(name) for name in (*DIMENSIONS, *settings)}
    values = own | figures | of_strategy | expected
    return {name: values.get(name) for name in (*COLUMNS, *settings)}


def columns_of(trials: Iterable[Trial]) -> dict[str, list[Any]]:
    """Return the values of all trials, in their order, for each of COLUMNS and each dimension of
    the trainer's own."""
    each = list(trials)
    settings = settings_of(each)
    rows = [row_of(trial, settings=settings) for trial in each]
    return {name: [row[name] for row in rows] for name in (*COLUMNS, *settings)}


def settings_of(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return the names of dimensions that not all trials have: those of experts, where a trial
    distributes or splits them, and the trainer's own."""
    each = list(trials)
    of_experts = [
        name
        for name in OF_EXPERTS
        if not all(BY_NAME[name].is_absent(trial.strategy.value(name)) for trial in each)
    ]
    return tuple(dict.fromkeys([*of_experts, *(n for t in each for n, _ in t.strategy.settings)]))
