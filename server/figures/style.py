"""Colours, axes and what all charts have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.schemas import FigureScheme
from server.figures.outcome import Outcome
from server.figures.vega import SCHEMA, Spec, at, expr, layer, nominal

FIGURE = ",.4~r"
"""How tooltips write a figure: four significant digits, thousands separated."""

LETTER_PX = 7.0
"""Mean width of a letter of a legend, px, rather more than less."""
NARROW = "width < 420"
STACKED = f"{NARROW} ? 'vertical' : 'horizontal'"
"""Where several legends of a figure stand: below each other where it is narrow."""
SYMBOL_PX = 40
"""Of a legend's symbol, and between two columns."""

Scheme = FigureScheme


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme: the marks are Okabe and Ito's (Color Universal Design, 2008), on light
    ground darker where they would not stand out from it by 3 to 1 (WCAG 2.2, 1.4.11)."""

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

    def of(self, outcome: Outcome) -> str:
        return {
            Outcome.MEASURED: self.measured,
            Outcome.SIMULATED: self.measured,
            Outcome.CONFIRMED: self.confirmed,
            Outcome.OOM: self.oom,
            Outcome.TIMEOUT: self.timeout,
            Outcome.CRASHED: self.crashed,
            Outcome.OTHER: self.other,
        }[outcome]


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


def finish(
    layers: Sequence[Spec], palette: Palette, rows: dict[str, list[dict[str, Any]]], *, height: int
) -> Spec:
    """Return the layers, the lowest first, as a specification with its rows, in the colours of the
    palette."""
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
    """Return a legend with as many columns as labels of this length have room for; one that is
    longer than the figure is wide is cut."""
    column_px = LETTER_PX * max(map(len, labels), default=0) + SYMBOL_PX
    columns = f"max(1, min({len(labels)}, floor(width / {column_px:.0f})))"
    return {"title": None, "columns": expr(columns), "labelLimit": expr("width - 24")}


def axis(has_rows: bool, **options: Any) -> Spec:
    """Return an axis; without ticks where there is nothing to read off it."""
    return options if has_rows else {"values": []}


def scale(has_rows: bool, **options: Any) -> Spec:
    """Return a scale from zero up; of any length where there is nothing to span it."""
    return {"zero": True, **options} if has_rows else {"domain": [0, 1], **options}


def by_value(values: Sequence[str], drawn: Sequence[Any]) -> Spec:
    """Return a scale that gives each value its own colour, shape or dashes."""
    return {"domain": list(values), "range": list(drawn)}


def limit_line(rows: str, encoding: Spec, palette: Palette) -> Spec:
    """Return the dashed line of what must not be exceeded."""
    return layer("rule", rows, encoding, color=palette.oom, strokeDash=[5, 4], strokeWidth=1.5)


def reference_line(rows: str, y: Spec, palette: Palette) -> list[Spec]:
    """Return the dashed line of what marks are read against, and over it the word in `label`."""
    named = {"x": at(0), "y": y, "text": nominal("label")}
    word: Spec = {"align": "left", "dx": 4, "dy": -6, "color": palette.faint, "fontSize": 11}
    return [
        layer("rule", rows, {"y": y}, color=palette.faint, strokeDash=[5, 4], strokeWidth=1.5),
        layer("text", rows, named, **word),
    ]
