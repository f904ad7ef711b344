"""Profiles from tables (of TOML or JSON), and back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from evaluators.adapter.adapter import Adapter
from evaluators.cluster.options import GPU_OPTIONS, option_fault
from evaluators.cluster.profile import ClusterProfile, Scheduling
from search_spaces.errors import InvalidInput, InvalidInputs, closest

SECTIONS: Mapping[str, type[Any]] = {
    name: kind
    for name, hint in get_type_hints(ClusterProfile).items()
    for kind in (hint, *get_args(hint))
    if isinstance(kind, type) and is_dataclass(kind) and kind is not Adapter
}
"""The tables of a profile's file, and what each of them becomes."""

_ADAPTER = TypeAdapter(ClusterProfile)
# What Pydantic refuses by itself -> why the value will not do, and what would.
_REASONS: Mapping[str, tuple[str, str]] = {
    "missing": ("missing", ""),
    "string_type": ("not text; write it in quotes", "text"),
    "tuple_type": ("not a list", 'a list of texts, ["…", "…"]'),
    "dict_type": ("not a table", 'NAME = "value"'),
    "mapping_type": ("not a table", 'NAME = "value"'),
    "dataclass_type": ("not a table of keys and sections", ""),
}


def profile_from_dict(
    data: Mapping[str, Any], *, source: str, environ: Mapping[str, str] | None = None
) -> ClusterProfile:
    """Return the profile in these tables.

    Args:
        source: where they come from, for errors.
        environ: variables for ~ and $NAME in paths, container options and Megatron's arguments;
            None for a profile that was already expanded.

    Raises:
        InvalidInputs: every unknown or missing key, every invalid value.
    """
    try:
        profile = _ADAPTER.validate_python(data, context={"environ": environ})
        problems = []
    except ValidationError as error:
        problems = [_problem(details) for details in error.errors(include_url=False)]
    if isinstance(data, Mapping):
        problems += _contradictions(data)
        problems += _adapters_of_files(data) if environ is not None else ()
    if problems:
        first = {problem.field: problem for problem in reversed(problems)}
        raise InvalidInputs(
            InvalidInput(p.field, p.value, f"{p.reason} (in {source})", valid=p.valid)
            for p in reversed(first.values())
        )
    return profile


def _problem(error: ErrorDetails) -> InvalidInput:
    """Return one of Pydantic's errors as ours, with the field's name as the user wrote it."""
    kind, context = error["type"], error.get("ctx", {})
    keys = [key for key in error["loc"] if key != "[key]"]
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)[1:]
    value = None if kind == "missing" else error["input"]
    if kind == "refused":
        reason, valid = context["reason"], context["valid"]
    elif kind == "literal_error":
        names = re.findall(r"'([^']*)'", context["expected"])
        near = closest(str(value), names, count=1)
        reason = "not one of them" + (f"; did you mean {near[0]}?" if near else "")
        valid = ", ".join(names)
    elif kind == "unexpected_keyword_argument":
        reason, valid = _unknown(keys)
    elif kind == "dataclass_type" and field:
        reason, valid = "not a section", f"[{field}]"
    else:
        reason, valid = _REASONS.get(kind, (error["msg"], ""))
    return InvalidInput(field or "profile", value, reason, valid=valid)


def _unknown(keys: Sequence[str | int]) -> tuple[str, str]:
    """Return why a key is unknown, and which keys are valid there.

    The suggestion is the section that has this key, or else the nearest name here.
    """
    *section, key = map(str, keys)
    table = SECTIONS[section[0]] if section else ClusterProfile
    names = sorted(_names(table) - {"adapter"}, key=[f.name for f in fields(table)].index)
    elsewhere = [f"{name}.{key}" for name, kind in SECTIONS.items() if key in _names(kind)]
    top = [key] if key in _names(ClusterProfile) else []
    near = [*elsewhere, *top, *closest(key, names, count=1)]
    return "unknown" + (f"; did you mean {near[0]}?" if near else ""), ", ".join(names)


def _names(table: type[Any]) -> set[str]:
    return {field.name for field in fields(table)}


def _contradictions(data: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """Yield conflicts between sections; each of them may be invalid itself."""
    if data.get("program") == "megatron-deepspeed" and "megatron" not in data:
        reason = "missing; the program megatron-deepspeed needs its checkout"
        yield InvalidInput("megatron", None, reason, valid='[megatron] with path = "…"')
    slurm, tasks = (
        section if isinstance(section, Mapping) else {}
        for section in (data.get("slurm"), data.get("tasks"))
    )
    if slurm.get("gpu_request", Scheduling.gpu_request) == "none":
        return
    for name, options in (
        ("slurm.directives", slurm.get("directives")),
        ("tasks.srun", tasks.get("srun")),
    ):
        for place, option in enumerate(options if isinstance(options, list | tuple) else ()):
            fault = option_fault(option, GPU_OPTIONS) if isinstance(option, str) else None
            if fault:
                yield InvalidInput(f"{name}[{place}]", option, fault)


def _adapters_of_files(data: Mapping[str, Any]) -> Iterator[InvalidInput]:
    """Yield what a file says of adapters, which belong to a campaign."""
    if "adapter" in data or data.get("program") == "adapter":
        reason = "a campaign names the adapter of its trainer, and a profile does not"
        yield InvalidInput(
            "adapter", data.get("adapter"), reason, valid="autotune submit --adapter"
        )


def profile_as_dict(profile: ClusterProfile) -> dict[str, Any]:
    """Return the profile as JSON-compatible tables, without None values: the inverse of
    `profile_from_dict`."""
    plain: dict[str, Any] = _ADAPTER.dump_python(profile, mode="json", exclude_none=True)
    return plain
