"""Read JSON lines and CSV.

Standard library and Python 3.8 only: the text of this module is sent to nodes without this package.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from evaluators.adapter.expression import Value
from evaluators.adapter.figures import value_of

DEEPEST = 8


@dataclass(frozen=True)
class FoundRow:
    """One row of a file: values by names that expressions can use.

    Attributes:
        at_s: when it was written, if the file says so.
    """

    values: Mapping[str, Value]
    at_s: float | None = None


def name_of(key: str) -> str:
    """Return a key as a name: `train/loss (mean)` becomes train_loss_mean."""
    return re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_")


def json_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the objects of a JSON lines file; nested keys are joined to the outer ones."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield FoundRow(values=dict(_flat(row, "", DEEPEST)))


def csv_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the rows of a CSV file whose first line has the column names."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        try:
            for row in csv.DictReader(file):
                cells = {key: cell for key, cell in row.items() if key and isinstance(cell, str)}
                yield FoundRow(values={name_of(key): value_of(cell) for key, cell in cells.items()})
        except csv.Error:
            return


def _flat(row: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Value]]:
    for key, value in row.items():
        name = name_of(f"{before}_{key}")
        if isinstance(value, dict) and depth:
            yield from _flat(value, name, depth - 1)
        elif isinstance(value, float) and not isfinite(value):
            yield name, str(value)
        elif isinstance(value, str):
            yield name, value_of(value)
        elif isinstance(value, (int, float)):
            yield name, value
