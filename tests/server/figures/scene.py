"""What a chart shows once it is drawn: its words and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

import vl_convert

from server.figures.vega import VEGA_LITE_VERSION, Spec


@dataclass(frozen=True, kw_only=True)
class Word:
    """A text; `length` is its limit or about what its letters take, px."""

    text: str
    x: float
    dx: float
    angle: float
    length: float


def drawn_words(spec: Spec, *, width: int) -> list[Word]:
    """Return the texts of a chart of this width, px, each once."""
    drawn = vl_convert.vegalite_to_scenegraph(spec | {"width": width}, vl_version=VEGA_LITE_VERSION)
    return list(_words(drawn["scenegraph"], 0.0))


def _words(mark: dict[str, Any], left: float) -> Iterator[Word]:
    for item in mark["items"]:
        x = left + (item.get("x") or 0.0)
        if mark.get("marktype") == "text" and not item.get("strokeWidth"):
            length = 0.58 * item["fontSize"] * len(item["text"])
            yield Word(
                text=item["text"],
                x=x,
                dx=item.get("dx") or 0.0,
                angle=item.get("angle") or 0.0,
                length=min(item.get("limit") or inf, length),
            )
        if "items" in item:
            yield from _words(item, x)
