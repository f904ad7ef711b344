"""Rows as wire models, whichever version of autotune wrote them."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from autotune.schemas.trials import Trial, TrialMetrics
from search_spaces.fields import checked
from search_spaces.strategy import Strategy
from server.store.tables import Base, TrialRow

Model = TypeVar("Model", bound=BaseModel)


def record_of(model: type[Model], row: Base, /, **others: Any) -> Model:
    columns = {name: getattr(row, name) for name in _shared(model, type(row)) if name not in others}
    return model.model_validate(columns | others)


@cache
def _shared(model: type[BaseModel], kind: type[Base]) -> tuple[str, ...]:
    return tuple(name for name in model.model_fields if name in kind.__mapper__.column_attrs)


def trial_of(row: TrialRow) -> Trial:
    """Return a trial's row as the wire model."""
    trial = record_of(
        Trial,
        row,
        strategy=checked(Strategy, row.strategy),
        metrics=row.metrics and TrialMetrics.model_validate(row.metrics),
        accumulations=row.measurements,
        peak_memory_gib_by_rank=row.peak_memory_gib,
    )
    nested = {
        "accumulations": [_compact(each) for each in trial.accumulations],
        "expected": trial.expected and _compact(trial.expected),
        "metrics": trial.metrics and _compact(trial.metrics),
    }
    return _compact(trial.model_copy(update=nested))


def _compact(model: Model) -> Model:
    kind = type(model)
    return kind.model_construct(_fields_set=_fields(kind), **dict(model))


@cache
def _fields(kind: type[BaseModel]) -> set[str]:
    return set(kind.model_fields)
