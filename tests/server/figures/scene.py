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
    align: str

    @property
    def ends(self) -> tuple[float, float]:
        """Where a level word begins and ends."""
        before = {"left": 0.0, "center": 0.5, "right": 1.0}[self.align] * self.length
        return self.x + self.dx - before, self.x + self.dx - before + self.length


def drawn_words(spec: Spec, *, width: int) -> list[Word]:
    """Return the texts of a chart of this width, px, each once."""
    drawn = vl_convert.vegalite_to_scenegraph(spec | {"width": width}, vl_version=VEGA_LITE_VERSION)
    return list(_words(drawn["scenegraph"], 0.0))


def words_on_page(spec: Spec, *, width: int) -> list[Word]:
    """Return the texts of a chart that fills a page's column of this width, px, from its edge."""
    fitted = {"width": width, "autosize": {"type": "fit-x", "contains": "padding"}}
    drawn = vl_convert.vegalite_to_scenegraph(spec | fitted, vl_version=VEGA_LITE_VERSION)
    return list(_words(drawn["scenegraph"], drawn["origin"][0]))


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
                align=item.get("align") or "left",
            )
        if "items" in item:
            yield from _words(item, x)
