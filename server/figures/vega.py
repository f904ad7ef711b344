"""Vega-Lite as data: channels and layers, and the colours and axes that all charts share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.schemas.choices import FigureScheme

VEGA_LITE_VERSION = "6.4"
"""The version of Vega-Lite for pages and pictures."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"

Spec = dict[str, Any]
"""A specification, or a part of one."""


def encoded(spec: Spec) -> bytes:
    return json.dumps(spec, ensure_ascii=False, separators=(",", ":")).encode()


def quantitative(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "quantitative", **options}


def nominal(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "nominal", **options}


def ordinal(field: str, **options: Any) -> Spec:
    return {"field": field, "type": "ordinal", **options}


def expr(expression: str) -> Spec:
    return {"expr": expression}


def at(place: float | Spec) -> Spec:
    return {"value": place}


def layer(
    mark: str, rows: str, encoding: Spec, *, transform: Sequence[Spec] = (), **look: Any
) -> Spec:
    """Return marks of one type.

    Args:
        rows: name of the dataset with one row per mark.
        look: properties of all marks.
    """
    drawn = {"data": {"name": rows}, "mark": {"type": mark, **look}, "encoding": encoding}
    return drawn | {"transform": list(transform)} if transform else drawn


FIGURE = ",.4~r"
"""Number format of tooltips: four significant digits, thousands separated."""

LETTER_PX = 7.0
"""Mean width of a letter in a legend, px, rounded up."""
NARROW = "width < 420"
STACKED = f"{NARROW} ? 'vertical' : 'horizontal'"
"""Direction of several legends: below each other in a narrow figure."""
SYMBOL_PX = 40
"""Width of a legend's symbol and of the gap between columns."""

Scheme = FigureScheme


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme. Marks have Okabe and Ito's colours (Color Universal Design, 2008),
    darkened for a contrast of at least 3 to 1 (WCAG 2.2, 1.4.11)."""

    text: str
    faint: str
    grid: str
    lane: str
    card: str
    measured: str
    confirmed: str
    other: str
    timeout: str
    crashed: str
    oom: str = "#D55E00"


PALETTES: dict[Scheme, Palette] = {
    "light": Palette(
        text="#1c2430",
        faint="#5a6472",
        grid="#e6e9ee",
        lane="#f6eeea",
        card="#ffffff",
        measured="#0072B2",
        confirmed="#009E73",
        other="#6b7280",
        timeout="#A87000",
        crashed="#B5528A",
    ),
    "dark": Palette(
        text="#e8ecf1",
        faint="#a3adba",
        grid="#2b333e",
        lane="#2a2320",
        card="#171c23",
        measured="#56B4E9",
        confirmed="#2fc79b",
        other="#b3bac4",
        timeout="#E69F00",
        crashed="#CC79A7",
    ),
}


HUES: dict[Scheme, dict[str, str]] = {
    "light": {
        "blue": "#0072B2",
        "sky": "#2f93cf",
        "navy": "#003f63",
        "pale": "#6f93ad",
        "green": "#008a65",
        "vermilion": "#c24f00",
        "salmon": "#c9776b",
        "brown": "#7a3500",
        "yellow": "#6b5f00",
        "orange": "#b87a00",
        "pink": "#b0588c",
        "purple": "#5b3f9c",
        "grey": "#6b7280",
        "slate": "#3d4550",
        "silver": "#878e99",
    },
    "dark": {
        "blue": "#3d9be0",
        "sky": "#a6d8f7",
        "navy": "#1f78b4",
        "pale": "#cfe6f5",
        "green": "#2fc79b",
        "vermilion": "#ff8f4d",
        "salmon": "#f7b9a0",
        "brown": "#c06f35",
        "yellow": "#F0E442",
        "orange": "#E69F00",
        "pink": "#e3a3c6",
        "purple": "#9d85d8",
        "grey": "#a3adba",
        "slate": "#75808e",
        "silver": "#cdd3db",
    },
}
"""Colours of areas and lines, Okabe and Ito's and shades of them: each has a contrast of at least 3
to 1 with the card of its scheme."""

INK: Spec = {
    "condition": {"test": "contrast(datum.ground, '#fff') >= 4.5", "value": "#fff"},
    "value": "#000",
}
"""The channel of a text's colour on the colour `ground` of its row: a contrast of at least 4.5 to 1
(WCAG 2.2, 1.4.3)."""

SERIES = ("blue", "vermilion", "green", "pink", "orange", "sky", "brown", "grey")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
"""Hues and dashes of lines, which differ by both."""


def series_channels(
    field: str, names: Sequence[str], scheme: Scheme, **of_legend: Any
) -> tuple[Spec, Spec]:
    """Return the colour and the dashes of lines by name, of at most as many as there are hues."""
    shown = legend(names) | of_legend
    colours = [HUES[scheme][hue] for hue in SERIES[: len(names)]]
    dashes = [DASHES[n % len(DASHES)] for n in range(len(names))]
    colour = nominal(field, scale=by_value(names, colours), legend=shown)
    return colour, nominal(field, scale=by_value(names, dashes), legend=shown)


def finish(
    layers: Sequence[Spec], palette: Palette, rows: dict[str, list[dict[str, Any]]], *, height: int
) -> Spec:
    """Return a specification of the layers, the lowest first, with their rows."""
    config = {
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": palette.faint,
            "titleColor": palette.faint,
            "titleFontWeight": "normal",
            "titleFontSize": 12,
            "labelFontSize": 11,
            "domainColor": palette.faint,
            "tickColor": palette.faint,
            "gridColor": palette.grid,
            "labelOverlap": "greedy",
        },
        "axisX": {"grid": False},
        "legend": {
            "orient": "bottom",
            "columns": expr(f"{NARROW} ? 2 : 3"),
            "labelColor": palette.text,
            "titleColor": palette.text,
            "labelFontSize": 12,
            "labelLimit": 260,
            "symbolSize": 80,
            "columnPadding": 18,
            "layout": {"bottom": {"anchor": "start", "direction": {"signal": STACKED}}},
        },
    }
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "layer": list(layers),
        "datasets": rows,
        "config": config,
        "background": "transparent",
    }


def legend(labels: Sequence[str]) -> Spec:
    column_px = LETTER_PX * max(map(len, labels), default=0) + SYMBOL_PX
    columns = f"max(1, min({len(labels)}, floor(width / {column_px:.0f})))"
    return {"title": None, "columns": expr(columns), "labelLimit": expr("width - 24")}


def axis(has_rows: bool, **options: Any) -> Spec:
    return options if has_rows else {"values": []}


def scale(has_rows: bool, **options: Any) -> Spec:
    return {"zero": True, **options} if has_rows else {"domain": [0, 1], **options}


def by_value(values: Sequence[str], drawn: Sequence[Any]) -> Spec:
    return {"domain": list(values), "range": list(drawn)}


def limit_line(rows: str, encoding: Spec, palette: Palette) -> Spec:
    return layer("rule", rows, encoding, color=palette.oom, strokeDash=[5, 4], strokeWidth=1.5)


def reference_line(rows: str, y: Spec, palette: Palette) -> list[Spec]:
    """Return a dashed reference line, with the text of `label` above it."""
    named = {"x": at(0), "y": y, "text": nominal("label")}
    word: Spec = {"align": "left", "dx": 4, "dy": -6, "color": palette.faint, "fontSize": 11}
    return [
        layer("rule", rows, {"y": y}, color=palette.faint, strokeDash=[5, 4], strokeWidth=1.5),
        layer("text", rows, named, **word),
    ]
