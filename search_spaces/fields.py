"""Fields of models, machines and strategies, checked wherever their values come from: Python, a
file, a command line, a request, a stored row."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    TypeAdapter,
    ValidationError,
)
from pydantic.dataclasses import is_pydantic_dataclass
from pydantic_core import PydanticCustomError, PydanticUseDefault, core_schema

from search_spaces.errors import InvalidInput, InvalidInputs, closest, suggestion

Checked = TypeVar("Checked")

CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
"""Configuration of the classes."""

UNSTORABLE = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text; raises PydanticCustomError for one that no database stores."""
    if UNSTORABLE.search(text):
        reason = "it has a NUL character, or half of a pair of surrogates, which no database keeps"
        raise PydanticCustomError("not_storable", "{reason}", {"reason": reason})
    return text


Label = Annotated[str, Field(max_length=200), AfterValidator(storable)]
"""A name, or the value of a dimension that is no number."""
Description = Annotated[str, Field(max_length=2000), AfterValidator(storable)]

BEYOND_ALL = 10**300  # whole numbers above this do not turn into floats
REFUSED, UNKNOWN = "refused", "unexpected_keyword_argument"
"""Types of Pydantic's errors: for a value that is refused here, for a field that does not exist."""

OF_KINDS = ("string_type", "dataclass_type", "tuple_type", "dict_type", "mapping_type")
"""Types of Pydantic's errors for a value of another kind."""


def refusal(reason: str, *, valid: str = "") -> PydanticCustomError:
    """Return an error of type REFUSED, whose context has the reason and what would be valid."""
    return PydanticCustomError(REFUSED, "{reason}", {"reason": reason, "valid": valid})


def _switch(value: Any) -> Any:
    if not isinstance(value, bool):
        raise refusal("not true or false", valid="true or false")
    return value


Switch = Annotated[bool, BeforeValidator(_switch)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plausible:
    """What a number may be: `Annotated[float, Plausible(maximum=2048, unit="GiB")]`.

    Attributes:
        minimum, maximum: bounds of what is plausible, both allowed.
        unit: named in refusals.
        slips: unit that is easily given instead -> how many of it make one of `unit`.
        or_default: whether None stands for the default.
    """

    minimum: float = 1
    maximum: float
    unit: str = ""
    slips: Mapping[str, float] = dataclasses.field(default_factory=dict, hash=False)
    or_default: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        kind = int if int in _parts(source) else float
        check = partial(self._checked, kind)
        return core_schema.no_info_before_validator_function(check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(schema) | {"minimum": self.minimum, "maximum": self.maximum}

    def valid(self, kind: type) -> str:
        """Return what is valid, in words."""
        noun = "a whole number" if kind is int else "a number"
        bounds = f" from {self.minimum:g} to {self.maximum:g}"
        return noun + bounds + (f" {self.unit}" if self.unit else "")

    def _checked(self, kind: type, value: Any) -> Any:
        if value is None and self.or_default:
            raise PydanticUseDefault
        if (reason := self._fault(kind, value)) is not None:
            raise refusal(reason, valid=self.valid(kind))
        return value

    def _fault(self, kind: type, value: object) -> str | None:
        if value is None:
            return "a value is needed"
        if kind is float:
            right = type(value) is int or (isinstance(value, float) and math.isfinite(value))
        else:
            right = type(value) is kind
        if not right or not isinstance(value, int | float):
            return f"not {self.valid(kind)}"
        if self.minimum <= value <= self.maximum:
            return None
        number = float(max(-BEYOND_ALL, min(value, BEYOND_ALL)))
        for unit, in_one in self.slips.items():
            if self.minimum <= (meant := number / in_one) <= self.maximum:
                return f"this looks like {unit}; in {self.unit} it would be {meant:g}"
        return "not plausible" if number > 0 else "must be positive"


def checked(
    kind: type[Checked],
    table: Mapping[str, Any],
    *,
    prefix: str = "",
    renamed: Mapping[str, str] | None = None,
) -> Checked:
    """Return the model, machine or strategy with the fields of a table.

    Args:
        prefix: of the field names in refusals: `machine` makes `machine.memory_gib`.
        renamed: a key that is not a field -> the reason to give.

    Raises:
        InvalidInputs: with every fault at once.
    """
    adapter: TypeAdapter[Checked] = _adapter(kind)  # type: ignore[arg-type]
    try:
        return adapter.validate_python(dict(table))
    except ValidationError as error:
        errors = sorted(error.errors(), key=lambda each: each["type"] != UNKNOWN)
        faults = [_refusal(kind, each, prefix, renamed or {}) for each in errors]
        raise InvalidInputs(faults) from None


def as_table(value: Any, *, exclude_defaults: bool = False) -> dict[str, Any]:
    """Return the fields of a model, machine or strategy as JSON can hold them; `checked` takes them
    back."""
    adapter: TypeAdapter[Any] = _adapter(type(value))  # type: ignore[arg-type]
    table: dict[str, Any] = adapter.dump_python(
        value, mode="json", exclude_defaults=exclude_defaults
    )
    return table


def refuse_all(faults: Iterable[InvalidInput]) -> None:
    problems = list(faults)
    if problems:
        raise InvalidInputs(problems)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def fields_of(kind: Any) -> Mapping[str, Any]:
    """Return field -> type of a class that Pydantic checks; empty for anything else."""
    if not is_pydantic_dataclass(kind):
        return {}
    types = get_type_hints(kind, include_extras=True)
    return {field.name: types[field.name] for field in dataclasses.fields(kind)}


def fields_within(annotation: Any) -> Mapping[str, Any]:
    """Return the fields of the table that a field of this type is; empty if it is none."""
    return next(filter(None, map(fields_of, _parts(annotation))), {})


def _refusal(
    kind: type, error: Mapping[str, Any], prefix: str, renamed: Mapping[str, str]
) -> InvalidInput:
    place = [str(part) for part in error["loc"] if part != "[key]"]
    field, value = ".".join(filter(None, [prefix, *place])), error["input"]
    *outer, name = place
    siblings = _fields_at(kind, outer)
    error_type, context = error["type"], error.get("ctx", {})
    if error_type == UNKNOWN:
        hint = suggestion(closest(name, siblings, count=1))
        reason = (not outer and renamed.get(name)) or f"no such field{hint}"
        return InvalidInput(field, value, reason, valid=", ".join(siblings))
    if error_type == REFUSED:
        return InvalidInput(field, value, context["reason"], valid=context["valid"])
    valid = _valid(siblings[name]) if name in siblings else ""
    if error_type == "missing":
        return InvalidInput(field, None, "this field is missing", valid=valid)
    if error_type in OF_KINDS:
        return InvalidInput(field, value, f"not {valid}", valid=valid)
    return InvalidInput(field, value, error["msg"].removeprefix("Input "))


def _fields_at(kind: type, place: Iterable[str]) -> Mapping[str, Any]:
    fields = fields_of(kind)
    for name in place:
        fields = fields_within(fields.get(name))
    return fields


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types of a union, and what annotates them."""
    if get_origin(annotation) in (Annotated, Union, UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


def _valid(annotation: Any) -> str:
    parts = list(_parts(annotation))
    for part in parts:
        if isinstance(part, Plausible):
            return part.valid(int if int in parts else float)
    if nested := fields_within(annotation):
        return f"a table of {', '.join(nested)}"
    names = {bool: "true or false", tuple: "a list of texts", Mapping: "a table"}
    kinds = (get_origin(part) or part for part in parts)
    return next((names[kind] for kind in kinds if kind in names), "text")
