"""A campaign's trials as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from autotune.schemas import StrategyShape, Trial, TrialMetrics
from server.store import Store
from server.store.trials import list_trials

PAGE = 500
UNITS = {
    "created_at": "UTC",
    "started_at": "UTC",
    "finished_at": "UTC",
    "duration_s": "s",
    "node_hours": "h",
    "predicted_iteration_time_s": "s",
    "predicted_memory_gib": "GiB",
    "micro_batch_size": "samples",
    "global_batch_size": "samples",
    "iteration_time_s": "s",
    "iteration_time_spread_s": "s",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s",
    "model_tflops_per_gpu": "TFLOP/s",
    "hardware_tflops_per_gpu": "TFLOP/s",
    "mfu": "1",
    "hfu": "1",
    "peak_memory_gib": "GiB",
    "loss": "nat",
    "joules_per_token": "J",
}
OWN = ("number", "purpose", "state", "simulated", "created_at", "started_at", "finished_at")
COSTS = ("duration_s", "node_hours", "predicted_iteration_time_s", "predicted_memory_gib")
REST = ("joules_per_token", "energy_note", "error", "host", "job_id", "token")
FIGURES = tuple(name for name in TrialMetrics.model_fields if name != "gradient_accumulation_steps")
COLUMNS = (*OWN, *StrategyShape.model_fields, *FIGURES, *COSTS, *REST)


def csv_lines(store: Store, campaign_id: int) -> Iterator[str]:
    """The table in pieces, each page of rows read when it is wanted."""
    yield _written([[f"{name} [{UNITS[name]}]" if name in UNITS else name for name in COLUMNS]])
    cursor: str | None = None
    while True:
        with store.session() as session:
            page = list_trials(session, campaign_id, cursor=cursor, limit=PAGE)
        yield _written([_row(trial) for trial in page.items])
        cursor = page.next
        if cursor is None:
            return


def _row(trial: Trial) -> list[Any]:
    figures = trial.metrics.model_dump() if trial.metrics else {}
    values: Mapping[str, Any] = (
        trial.model_dump(mode="json") | figures | trial.strategy.model_dump()
    )
    return [_cell(values.get(name)) for name in COLUMNS]


def _cell(value: Any) -> Any:
    """Spreadsheets run a text that begins like a formula: an apostrophe makes it a text."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return value


def _written(rows: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()
