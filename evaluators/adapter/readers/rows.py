"""JSON lines and CSV.

Nothing but the standard library is imported and nothing newer than Python 3.8 is used: the text of
this module goes along to nodes where this package is not installed.
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
    """One row of a file: its values, by names that expressions can have.

    Attributes:
        at_s: when it was written, where the file says so.
    """

    values: Mapping[str, Value]
    at_s: float | None = None


def name_of(key: str) -> str:
    """Return a key as a name: `train/loss (mean)` is train_loss_mean."""
    return re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_")


def json_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the objects of a file with one a line; keys of inner ones follow those around them."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield FoundRow(values=dict(_flat(row, "", DEEPEST)))


def csv_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the rows of a file whose first line names its columns."""
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
