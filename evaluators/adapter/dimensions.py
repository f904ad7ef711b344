"""Trainer-defined dimensions in an adapter's file: `[dimension.overlap]`, `values = [true,
false]`."""

from __future__ import annotations

from collections.abc import Sequence
from keyword import kwlist
from math import isfinite
from typing import Any

from autotune.baseline.statement import KEYS
from evaluators.adapter.expression import FUNCTIONS
from evaluators.adapter.faults import AdapterFaults
from evaluators.adapter.names import AT_START, OF_ONE_START
from evaluators.cluster.values import IDENTIFIER
from search_spaces.dimensions import DIMENSIONS
from search_spaces.program import OwnDimension
from search_spaces.strategy import are_numbers

LONGEST_NAME = 50
MOST_VALUES = 100
LONGEST_TEXT = 200
KEYS_OF_ONE = ("values", "searched")
FORM = "values = [true, false], two or more switches, numbers or texts"
TAKEN = frozenset(
    {*AT_START, *OF_ONE_START, *kwlist, *FUNCTIONS, *KEYS, "settings"}
    | {"step", "iteration_time_s", "loss", "peak_memory_gib", "parameters"}
)
"""Names that already have a meaning in the notation of layouts."""


def own_dimension(name: str, table: object, faults: AdapterFaults) -> OwnDimension | None:
    """Return a dimension; None if it is invalid, with the problem added to `faults`."""
    before = len(faults.problems)
    key = f"dimension.{name}"
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
    """Return what is wrong with values; empty if nothing is."""
    if not isinstance(values, list) or not 2 <= len(values) <= MOST_VALUES:
        return f"not a list of 2 to {MOST_VALUES} values"
    if not _of_one_kind(values):
        return "not all of one kind"
    if any(isinstance(value, float) and not isfinite(value) for value in values):
        return "not finite"
    if any(isinstance(value, str) and not 0 < len(value) <= LONGEST_TEXT for value in values):
        return f"a text has 1 to {LONGEST_TEXT} characters"
    written = {str(value).strip().lower() for value in values}
    return "" if len(written) == len(values) == len(set(values)) else "two of them are alike"


def _of_one_kind(values: Sequence[object]) -> bool:
    kinds = {type(value) for value in values}
    return kinds in ({bool}, {str}) or are_numbers(values)  # type: ignore[arg-type]
