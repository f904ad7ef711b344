"""A table of figures (a TOML file, a request) held against what each field may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion

BEYOND_ALL = 10**300  # whole numbers above this do not turn into floats


@dataclass(frozen=True, kw_only=True)
class TableField:
    """What one field may be.

    Attributes:
        kind: `float` takes integers too; `int` takes no booleans; `dict` is a table of `fields`.
        minimum, maximum: bounds of what is plausible, both allowed; of numbers alone.
        unit: named in refusals.
        slips: unit that is easily given instead -> how many of it make one of `unit`.
        required: whether the table must have it; nullable: whether it may be None.
    """

    name: str
    kind: type
    minimum: float = -math.inf
    maximum: float = math.inf
    unit: str = ""
    slips: Mapping[str, float] | None = None
    required: bool = True
    nullable: bool = False
    fields: tuple[TableField, ...] = ()

    @property
    def valid(self) -> str:
        """What would do, in words."""
        if self.kind is bool:
            return "true or false"
        if self.kind is str:
            return "text"
        if self.kind is dict:
            return f"a table of {', '.join(field.name for field in self.fields)}"
        noun = "a whole number" if self.kind is int else "a number"
        bounds = f" from {self.minimum:g}" if math.isfinite(self.minimum) else ""
        bounds += f" to {self.maximum:g}" if math.isfinite(self.maximum) else ""
        return noun + bounds + (f" {self.unit}" if self.unit else "")

    def converted(self, value: Any) -> Any:
        if self.kind is dict:
            return _converted(value, self.fields)
        return float(value) if self.kind is float else value

    def fault(self, value: object) -> str | None:
        """Return why `value` will not do, or None."""
        if value is None:
            return None if self.nullable else "a value is needed"
        if self.kind is float:
            right = type(value) is int or (isinstance(value, float) and math.isfinite(value))
        else:
            right = type(value) is self.kind
        if not right:
            return f"not {self.valid}"
        if isinstance(value, int | float) and not self.minimum <= value <= self.maximum:
            number = float(max(-BEYOND_ALL, min(value, BEYOND_ALL)))
            for unit, in_one in (self.slips or {}).items():
                if self.minimum <= (meant := number / in_one) <= self.maximum:
                    return f"this looks like {unit}; in {self.unit} it would be {meant:g}"
            return "not plausible" if number > 0 else "must be positive"
        return None


def checked(
    table: Mapping[str, Any],
    fields: Sequence[TableField],
    *,
    prefix: str,
    renamed: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return the table's values, floats made of integers where asked; absent optional ones are left
    out.

    Args:
        prefix: of the field names in refusals: `machine` makes `machine.memory_gib`.
        renamed: a key that is not taken -> what to say of it.

    Raises:
        InvalidInputs: with every fault at once.
    """
    refuse_all(_faults(table, fields, prefix=prefix, renamed=renamed or {}))
    return _converted(table, fields)


def _converted(table: Mapping[str, Any], fields: Sequence[TableField]) -> dict[str, Any]:
    taken = {field.name: field for field in fields}
    return {
        name: value if value is None else taken[name].converted(value)
        for name, value in table.items()
    }


def _faults(
    table: Mapping[str, Any],
    fields: Sequence[TableField],
    *,
    prefix: str,
    renamed: Mapping[str, str],
) -> Iterator[InvalidInput]:
    names = [field.name for field in fields]
    for key in (key for key in table if key not in names):
        hint = suggestion(closest(key, names, count=1))
        reason = renamed.get(key, f"no such field{hint}")
        yield InvalidInput(f"{prefix}.{key}", table[key], reason, valid=", ".join(names))
    for field in fields:
        if field.name not in table:
            if field.required:
                reason = "this field is missing"
                yield InvalidInput(f"{prefix}.{field.name}", None, reason, valid=field.valid)
        elif (fault := field.fault(table[field.name])) is not None:
            value = table[field.name]
            yield InvalidInput(f"{prefix}.{field.name}", value, fault, valid=field.valid)
        elif field.kind is dict and table[field.name] is not None:
            nested = f"{prefix}.{field.name}"
            yield from _faults(table[field.name], field.fields, prefix=nested, renamed={})


def refuse_all(faults: Iterable[InvalidInput]) -> None:
    problems = list(faults)
    if problems:
        raise InvalidInputs(problems)
