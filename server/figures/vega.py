"""Vega-Lite as data: the words that every chart repeats."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

VEGA_LITE_VERSION = "6.4"
"""The version that charts are written for, and that pages and pictures draw them with."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

Spec = dict[str, Any]
"""A part of a specification, or all of it."""


def encoded(spec: Spec) -> bytes:
    """Return a specification as it is sent."""
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":")).encode()


def quantitative(field: str, **options: Any) -> Spec:
    """Return a channel that encodes a number."""
    return {"field": field, "type": "quantitative", **options}


def nominal(field: str, **options: Any) -> Spec:
    """Return a channel that encodes a name."""
    return {"field": field, "type": "nominal", **options}


def ordinal(field: str, **options: Any) -> Spec:
    """Return a channel that encodes a value of a sequence."""
    return {"field": field, "type": "ordinal", **options}


def expr(expression: str) -> Spec:
    """Return what Vega computes while it draws."""
    return {"expr": expression}


def at(place: float | Spec) -> Spec:
    """Return a channel with one value for all marks, px where it is a place."""
    return {"value": place}


def layer(
    mark: str, rows: str, encoding: Spec, *, transform: Sequence[Spec] = (), **look: Any
) -> Spec:
    """Return marks of one type.

    Args:
        rows: name of the dataset that has a row for each mark.
        look: properties that all marks share.
    """
    drawn = {"data": {"name": rows}, "mark": {"type": mark, **look}, "encoding": encoding}
    return drawn | {"transform": list(transform)} if transform else drawn
