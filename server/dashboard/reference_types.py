"""JSON Schema in words: what a property may be, with links to the objects that it is made of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]

ROLES = {"-Input": " (as sent)", "-Output": " (as answered)"}
"""Of objects that have optional properties only when they are sent."""

NAMES = {"integer": "whole number", "boolean": "true or false", "null": "null"}
FORMATS = {"date-time": "time (RFC 3339)", "binary": "bytes"}


@dataclass(frozen=True, kw_only=True)
class TypeWord:
    """A part of a type in words; `schema` is the object that it names, empty where it names
    none."""

    text: str
    schema: str = ""


def object_name(schema: str) -> str:
    """Return the name of an object for people."""
    for ending, role in ROLES.items():
        if schema.endswith(ending):
            return schema.removesuffix(ending) + role
    return schema


def type_words(schema: Schema) -> list[TypeWord]:
    """Return what a value may be, in parts of which some name an object."""
    return list(_merged(_words(schema)))


def _words(schema: Schema) -> Iterator[TypeWord]:
    choices = schema.get("anyOf") or schema.get("oneOf")
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield TypeWord(text=object_name(name), schema=name)
    elif choices:
        for place, choice in enumerate(choices):
            if place:
                yield TypeWord(text=" or ")
            yield from _words(choice)
    elif schema.get("type") == "array":
        yield TypeWord(text="list of ")
        yield from _words(schema.get("items", {}))
        yield TypeWord(text=_counted(schema))
    elif isinstance(schema.get("additionalProperties"), Mapping):
        yield TypeWord(text="object of ")
        yield from _words(schema["additionalProperties"])
    else:
        yield TypeWord(text=_plain(schema))


def _plain(schema: Schema) -> str:
    """Return what a value that is made of no others may be."""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        *others, last = [json.dumps(value) for value in schema["enum"]]
        return f"{', '.join(others)} or {last}" if others else last
    kind: str = schema.get("type", "anything")
    text = FORMATS.get(schema.get("format", ""), NAMES.get(kind, kind))
    return text + _bounds(schema) + _length(schema)


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    said = {
        "minimum": "at least",
        "maximum": "at most",
        "exclusiveMinimum": "above",
        "exclusiveMaximum": "below",
    }
    return "".join(
        f", {words} {schema[name]:,}"
        for name, words in said.items()
        if schema.get(name) is not None
    )


def _length(schema: Schema) -> str:
    most = schema.get("maxLength")
    return "" if most is None else f", {most:,} characters at most"


def _counted(schema: Schema) -> str:
    low, high = schema.get("minItems"), schema.get("maxItems")
    if low is not None and high is not None:
        return f" ({low:,} to {high:,})"
    return "" if high is None else f" ({high:,} at most)"


def _merged(words: Iterator[TypeWord]) -> Iterator[TypeWord]:
    """Yield the same with neighbours that name no object as one."""
    text = ""
    for word in words:
        if word.schema:
            if text:
                yield TypeWord(text=text)
            yield word
            text = ""
        else:
            text += word.text
    if text:
        yield TypeWord(text=text)
