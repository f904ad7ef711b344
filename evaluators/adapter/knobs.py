"""Read and validate knobs, from built-in catalogues and from tables of adapters and profiles."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evaluators.adapter.expression import Expression, ExpressionFault, Value, parse
from evaluators.adapter.names import strategy_names
from evaluators.adapter.own_dimensions import AdapterFaults, own_dimension
from evaluators.adapter.places import Place
from evaluators.adapter.template import Template, template
from search_spaces.choices import values_of
from search_spaces.dimensions import BY_NAME, DIMENSIONS
from search_spaces.errors import InvalidInput
from search_spaces.knob import Knob
from search_spaces.machine import Machine
from search_spaces.program import OwnDimension
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

FOLDER = Path(str(files(__package__))) / "knobs"
KNOB = TypeAdapter(Knob)


def catalog_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


@cache
def knob_catalog(name: str) -> Mapping[str, Knob]:
    """Return the knobs of a built-in catalogue. Only names are accepted, never a path."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return {each: KNOB.validate_python(knob) for each, knob in table["knob"].items()}


def knobs_of_bundled() -> Mapping[str, Knob]:
    return knob_catalog("deepspeed")


def own_dimensions(knobs: Mapping[str, Knob]) -> tuple[OwnDimension, ...]:
    """Return the knobs that no trainer shares as dimensions, which are not searched."""
    return tuple(
        OwnDimension(name=name, values=knob.values, searched=False)
        for name, knob in knobs.items()
        if name not in DIMENSIONS
    )


def knob_names(
    knobs: Mapping[str, Knob], transformer: Transformer, machine: Machine, strategy: Strategy
) -> dict[str, Value]:
    """Return the values of all names that knobs may mention; knobs without a choice have their
    first value."""
    first = {name: knob.values[0] for name, knob in knobs.items()}
    return {**first, **strategy_names(transformer, machine, strategy)}


def read_knobs(table: Mapping[str, Any], faults: AdapterFaults) -> dict[str, Knob]:
    """Return the knobs of the catalogues in `knobs_from` and those in `[knob.NAME]`, which replace
    them, without a check of their content."""
    knobs: dict[str, Knob] = {}
    names = table.get("knobs_from", [])
    for name in names if isinstance(names, list) else [names]:
        if name not in catalog_names():
            valid = f"a list of {', '.join(catalog_names())}"
            faults.add("knobs_from", name, "no such catalogue of knobs", valid=valid)
        else:
            knobs |= knob_catalog(name)
    own = table.get("knob", {})
    if not isinstance(own, Mapping):
        faults.add("knob", own, "not a table", valid="[knob.NAME]")
        return knobs
    for name, one in own.items():
        try:
            knobs[name] = KNOB.validate_python(one)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                key = ".".join(["knob", name, *map(str, each["loc"])])
                faults.add(key, each["input"], each["msg"])
    return knobs


def check_knob(
    name: str, knob: Knob, faults: AdapterFaults, known: Collection[str] | None = None
) -> None:
    """Note what is wrong with a knob.

    Args:
        known: names that its expressions may mention; None: any, as the trainer is not known.
    """
    before, key = len(faults.problems), f"knob.{name}"
    _check_values(name, knob, faults)
    for where, text, read in _texts(knob):
        try:
            names = read(text).names
        except ExpressionFault as fault:
            faults.add(f"{key}.{where}", text, str(fault))
            continue
        for strange in sorted(names.difference(names if known is None else known)):
            hint = ", ".join(known or ())
            faults.add(f"{key}.{where}", text, f"unknown name {strange}", valid=hint)
    for place, setting in knob.set.items():
        try:
            Place.read(place)
        except InvalidInput as fault:
            faults.add(f"{key}.set.{place}", setting, fault.reason, valid=fault.valid)
    if len(faults.problems) == before:
        _check_settings(name, knob, faults)
        _check_published(key, knob, faults)


def _check_values(name: str, knob: Knob, faults: AdapterFaults) -> None:
    if name not in DIMENSIONS:
        own_dimension(name, {"values": list(knob.values)}, faults, section="knob")
        return
    if BY_NAME[name].part not in ("switch", "numbers"):
        reason = "other values are another layout or batch, which is searched"
        valid = "a switch of all trainers, precision, or a new name"
        faults.add(f"knob.{name}.values", list(knob.values), reason, valid=valid)
        return
    for value in knob.values:
        try:
            values_of(name, value)
        except InvalidInput as fault:
            faults.add(f"knob.{name}.values", value, fault.reason, valid=fault.valid)


def _texts(knob: Knob) -> Iterator[tuple[str, str, Callable[[str], Expression | Template]]]:
    if knob.when:
        yield "when", knob.when, parse
    for number, conflict in enumerate(knob.conflicts):
        yield f"conflicts[{number}].when", conflict.when, parse
    for place, setting in knob.set.items():
        yield f"set.{place}", str(setting), template


def _check_settings(name: str, knob: Knob, faults: AdapterFaults) -> None:
    own = {p: template(text) for p, text in knob.set.items() if isinstance(text, str)}
    for place, value in product((p for p in own if own[p].names <= {name}), knob.values):
        try:
            own[place].value({name: value})
        except ExpressionFault as fault:
            reason = f"{fault}, where {name} is {value}"
            faults.add(f"knob.{name}.set.{place}", knob.set[place], reason)


def _check_published(key: str, knob: Knob, faults: AdapterFaults) -> None:
    valid = ", ".join(map(str, knob.values))
    for effect in knob.published:
        for value in (effect.value, effect.baseline):
            if value is not None and value not in knob.values:
                faults.add(f"{key}.published", value, "not a value of this knob", valid=valid)
