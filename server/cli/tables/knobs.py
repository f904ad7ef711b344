"""Tables of knobs: values, where they change anything, what they change, what was published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Group

from autotune.words.quantities import plural
from search_spaces.knob import Knob
from server.cli.tables import elements


def knobs_table(knobs: Mapping[str, Knob]) -> Group:
    columns: elements.TableColumns[tuple[str, Knob]] = (
        ("knob", lambda item: item[0]),
        ("values", lambda item: ", ".join(map(_written, item[1].values))),
        ("where", lambda item: item[1].when or "everywhere"),
        ("losses", lambda item: item[1].numerics),
        ("memory", lambda item: item[1].memory),
        ("published gain", lambda item: _published(item[1])),
        ("", lambda item: item[1].meaning),
    )
    return elements.table(knobs.items(), columns)


def knobs_document(
    knobs: Mapping[str, Knob], places: Mapping[str, list[str]] | None = None
) -> list[dict[str, Any]]:
    """Return the knobs with all that is known of them.

    Args:
        places: knob -> what an adapter sets by it.
    """
    own = places or {}
    return [
        {"name": name, **asdict(knob), "sets": [*knob.set] or own.get(name, [])}
        for name, knob in knobs.items()
    ]


def _written(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _published(knob: Knob) -> str | None:
    """Return the gains of other values than the first."""
    gains = sorted(
        100 * ((1 / each.gain if each.value == knob.values[0] else each.gain) - 1)
        for each in knob.published
        if each.gain is not None
    )
    if not gains:
        return None
    several = f" ({plural(len(gains), 'case')})" if len(gains) > 1 else ""
    return " to ".join(dict.fromkeys(f"{gain:+.0f} %" for gain in (gains[0], gains[-1]))) + several
