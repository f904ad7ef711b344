"""Validation of plain values, with Pydantic's errors as one sentence per field."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from inspect import getmembers, isclass
from itertools import islice
from pkgutil import iter_modules
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from autotune import schemas
from autotune.schemas.wire import FieldProblem
from search_spaces import fields
from search_spaces.errors import LONGEST_NAME, InvalidInput, InvalidInputs, closest
from search_spaces.fields import REFUSED, fields_of

WireModel = TypeVar("WireModel", bound=BaseModel)

PLACES = frozenset({"body", "query", "path", "header", "cookie"})
BOUNDS = {
    "gt": "more than {}",
    "ge": "at least {}",
    "lt": "less than {}",
    "le": "at most {}",
    "expected": "{}",
}
KINDS = {
    "bool_parsing": "true or false",
    "float_parsing": "a number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
}
"""What would be valid, by the type of Pydantic's error, where its bounds do not say so."""
TOO_LONG = {"too_long": "values", "string_too_long": "characters"}
"""What a value is counted in, by the type of Pydantic's error."""
SHOWN = 40
"""Characters of a value that is too long."""
MOST_UNKNOWN = 10
"""Unknown fields that are named: the nearest names to each are searched for."""
MOST_ERRORS = 1000
"""Errors of Pydantic's that are put into words; a field of several forms has one for each."""
UNKNOWN = ("extra_forbidden", fields.UNKNOWN)
"""The types of Pydantic's errors for a field that does not exist."""


@cache
def forms() -> Mapping[str, type[Any]]:
    """Return all wire models by name; built only when something is refused."""
    modules = (
        import_module(f"{schemas.__name__}.{at.name}") for at in iter_modules(schemas.__path__)
    )
    return {
        name: model
        for module in modules
        for name, model in getmembers(module, isclass)
        if _fields_of(model)
    }


def _fields_of(kind: Any) -> Mapping[str, Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    return fields_of(kind)


def validated(wire_model: type[WireModel], plain: Mapping[str, Any]) -> WireModel:
    """Return `plain` as a wire model. Raises InvalidInputs with each invalid field."""
    try:
        return wire_model.model_validate(plain)
    except ValidationError as error:
        raise InvalidInputs(
            InvalidInput(problem.field, problem.value, problem.reason, valid=problem.valid)
            for problem in field_problems(error.errors(), known=wire_model.model_fields)
        ) from None


@cache
def known_fields() -> frozenset[str]:
    """Return the names of all fields of all wire models."""
    return frozenset(field for model in forms().values() for field in _fields_of(model))


REQUESTS = f"{schemas.__name__}.requests"


@cache
def fields_within(parent: str) -> frozenset[str]:
    """Return the names of the fields inside the value of a field of this name."""
    held = [
        form
        for model in forms().values()
        if model.__module__ == REQUESTS and parent in _fields_of(model)
        for form in _forms_in(_fields_of(model)[parent])
    ]
    return frozenset(field for form in held for field in _fields_of(form))


def _forms_in(annotation: Any) -> Iterator[Any]:
    if _fields_of(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _forms_in(argument)


def field_problems(
    errors: Sequence[Mapping[str, Any]], *, known: Collection[str] = ()
) -> list[FieldProblem]:
    """Return one problem for each invalid field, but at most MOST_UNKNOWN unknown fields.

    `known` are the top-level fields, from which the nearest to an unknown one is suggested; those
    of all wire models if it is empty.

    A field that takes several forms (a name or a shape) has an error for each form. The deepest
    error is of the form that was meant, and the others are dropped. The same holds for a value of
    the right form with a wrong length or character.
    """
    unknown = [error for error in errors if error["type"] in UNKNOWN]
    others = (error for error in errors if error["type"] not in UNKNOWN)
    by_form: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for error in [*islice(others, MOST_ERRORS), *unknown[:MOST_UNKNOWN]]:
        outer, inner = _path(error["loc"])
        by_form.setdefault(outer, []).append((inner, error))
    found = [
        problem for outer, members in by_form.items() for problem in _of_form(outer, members, known)
    ]
    if len(unknown) > MOST_UNKNOWN:
        reason = f"there are no such fields; the first {MOST_UNKNOWN} are named"
        found.append(FieldProblem(field="unknown fields", value=len(unknown), reason=reason))
    return found


def _path(location: tuple[Any, ...]) -> tuple[str, str]:
    parts = [shortened(str(part)) for part in location]
    if parts and parts[0] in PLACES:
        parts = parts[1:] or parts[:1]
    fork = next((index for index, part in enumerate(parts) if _is_form(part)), len(parts))
    inner = [part for part in parts[fork:] if not _is_form(part)]
    return ".".join(parts[:fork]), ".".join(inner)


def shortened(text: str) -> str:
    """Return a user's text shortened for quoting."""
    return text if len(text) <= LONGEST_NAME else f"{text[:SHOWN]}…"


def _is_form(name: str) -> bool:
    return name in {"str", "int", "bool", "float"} or name in forms() or "[" in name or "-" in name


def _of_form(
    outer: str, members: list[tuple[str, Mapping[str, Any]]], known: Collection[str]
) -> list[FieldProblem]:
    meant = [member for member in members if member[1]["type"] in {*TOO_LONG, "not_storable"}]
    deep = [member for member in members if member[0]]
    by_field: dict[str, list[FieldProblem]] = {}
    for inner, error in meant or deep or members:
        field = f"{outer}.{inner}" if inner else outer
        by_field.setdefault(field, []).append(_problem(field, error, known))
    return [
        problems[0].model_copy(
            update={
                "reason": " or ".join(dict.fromkeys(problem.reason for problem in problems)),
                "valid": " or ".join(dict.fromkeys(p.valid for p in problems if p.valid)),
            }
        )
        for problems in by_field.values()
    ]


def _problem(field: str, error: Mapping[str, Any], known: Collection[str]) -> FieldProblem:
    context = error.get("ctx", {})
    bounds = [text.format(context[k]) for k, text in BOUNDS.items() if k in context]
    valid = ", ".join(bounds) or KINDS.get(error["type"], "")
    reason = str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    value = error.get("input")
    if error["type"] == "missing":
        reason, value = "it is required", None
    elif error["type"] == REFUSED:
        reason, valid = context["reason"], context["valid"]
    elif error["type"] in TOO_LONG:
        unit = TOO_LONG[error["type"]]
        reason, valid = "it is too long", f"at most {context['max_length']} {unit}"
        value = f"{str(value)[:SHOWN]}…"
    elif error["type"] in UNKNOWN:
        parent, _, name = field.rpartition(".")
        within = fields_within(parent.rpartition(".")[2]) if parent else known
        near = closest(name, within or known_fields()) or sorted(within)
        reason, valid = "there is no such field", " or ".join(near)
    elif error["type"] == "json_invalid":
        reason, field, value = f"not JSON: {context.get('error')}", "body", None
    return FieldProblem(field=field, value=value, reason=reason, valid=valid)
