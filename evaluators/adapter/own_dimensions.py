"""Dimensions that a trainer's adapter defines, and the problems found in such a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from keyword import kwlist
from math import isfinite
from typing import Any

from autotune.baseline.statement import KEYS as BASELINE_KEYS
from evaluators.adapter.expression import FUNCTIONS
from evaluators.adapter.names import AT_START, IDENTIFIER, OF_ONE_START
from search_spaces.dimensions import DIMENSIONS
from search_spaces.errors import InvalidInput, closest, suggestion
from search_spaces.program import OwnDimension
from search_spaces.strategy import MOST_SET, are_numbers

MEMORY = ("peak_memory_gib", "peak_allocated_gib")
FIGURES = ("step", "iteration_time_s", "loss", *MEMORY, "parameters")


@dataclass(kw_only=True)
class AdapterFaults:
    """The problems of one adapter.

    Attributes:
        source: its file.
    """

    source: str
    problems: list[InvalidInput] = field(default_factory=list)

    def add(self, key: str, value: object, reason: str, *, valid: str = "") -> None:
        where = f"{reason} (in {self.source})"
        self.problems.append(InvalidInput(key, value, where, valid=valid))

    def unknown(self, key: str, value: object, known: Sequence[str]) -> None:
        reason = f"unknown{suggestion(closest(key.rpartition('.')[2], known, count=1))}"
        self.add(key, value, reason, valid=", ".join(known))


LONGEST_NAME = 50
MOST_VALUES = 100
LONGEST_TEXT = 200
KEYS_OF_ONE = ("values", "searched")
FORM = "values = [true, false], two or more switches, numbers or texts"
TAKEN = frozenset(
    {*AT_START, *OF_ONE_START, *kwlist, *FUNCTIONS, *BASELINE_KEYS, *FIGURES, "settings"}
)
"""Names that already have a meaning in the notation of layouts."""


def own_dimension(
    name: str, table: object, faults: AdapterFaults, *, section: str = "dimension"
) -> OwnDimension | None:
    before = len(faults.problems)
    key = f"{section}.{name}"
    _check_name(key, name, faults)
    if not isinstance(table, dict):
        faults.add(key, table, "not a table", valid=FORM)
        return None
    for each in table:
        if each not in KEYS_OF_ONE:
            faults.unknown(f"{key}.{each}", table[each], KEYS_OF_ONE)
    values, searched = table.get("values"), table.get("searched", True)
    if not isinstance(searched, bool):
        faults.add(f"{key}.searched", searched, "not a switch", valid="true or false")
    fault = _fault(values)
    if fault:
        faults.add(f"{key}.values", values, fault, valid=FORM)
    if len(faults.problems) > before or not isinstance(values, list):
        return None
    return OwnDimension(name=name, values=tuple(values), searched=searched is True)


def _check_name(key: str, name: str, faults: AdapterFaults) -> None:
    if name in DIMENSIONS:
        valid = f"no such table: it is enough to mention {{{name}}}"
        faults.add(key, name, "every trainer has this dimension", valid=valid)
    elif not IDENTIFIER.fullmatch(name) or len(name) > LONGEST_NAME or name in TAKEN:
        reason = "it means something else already" if name in TAKEN else "not a name"
        valid = f"up to {LONGEST_NAME} letters, digits and _"
        faults.add(key, name, reason, valid=valid)


def _fault(values: Any) -> str:
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_VALUES:
        return f"not a list of 2 to {MOST_VALUES} values"
    if not _of_one_kind(values):
        return "not all of one kind"
    if any(isinstance(value, float) and not isfinite(value) for value in values):
        return "not finite"
    if any(isinstance(value, int | float) and abs(value) > MOST_SET for value in values):
        return f"a number has a magnitude of at most {MOST_SET:.0e}"
    texts = [value for value in values if isinstance(value, str)]
    if any(not 0 < len(text) <= LONGEST_TEXT or not text.isprintable() for text in texts):
        return f"a text has 1 to {LONGEST_TEXT} characters, without line breaks and the like"
    written = {str(value).strip().lower() for value in values}
    return "" if len(written) == len(values) == len(set(values)) else "two of them are alike"


def _of_one_kind(values: Sequence[object]) -> bool:
    kinds = {type(value) for value in values}
    return kinds in ({bool}, {str}) or are_numbers(values)  # type: ignore[arg-type]
