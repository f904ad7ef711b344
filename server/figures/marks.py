"""Marks of trials: one colour and shape for each outcome, and the strip in which failures stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from server.figures.outcome import SHAPES, Outcome, outcomes
from server.figures.style import Palette, by_value
from server.figures.vega import Spec, at, expr, layer, nominal

FAILURE_LANE_PX = 34
"""Height of the strip below the axis's zero where failures stand."""

LANE_ROWS = {"lane": [{"lane": "failures"}]}
"""Rows of the strip itself: exactly one."""


def outcome_channels(
    palette: Palette, *, simulated: bool, drawn: Collection[Outcome] | None = None
) -> Spec:
    """Return the colour and the shape of marks by the field `outcome`; the legend has the outcomes
    in `drawn` alone, or else all that there may be."""
    possible = outcomes(simulated=simulated)
    names = [outcome.value for outcome in possible]
    colours = [palette.of(outcome) for outcome in possible]
    shapes = [SHAPES[outcome] for outcome in possible]
    shown = [outcome.value for outcome in possible if drawn is None or outcome in drawn]
    told: Spec = {"title": None, "legend": {"values": shown}}
    return {
        "color": nominal("outcome", scale=by_value(names, colours), **told),
        "shape": nominal("outcome", scale=by_value(names, shapes), **told),
    }


def above_lane() -> list[Any]:
    """Return the range of a vertical scale that leaves the strip free."""
    return [expr(f"height - {FAILURE_LANE_PX}"), 0]


def lane_middle() -> Spec:
    """Return the vertical place of marks in the strip."""
    return at(expr(f"height - {(FAILURE_LANE_PX - 8) / 2}"))


def lane_layers(palette: Palette) -> list[Spec]:
    """Return the strip and its name; they need LANE_ROWS."""
    strip = {"y": at(expr(f"height - {FAILURE_LANE_PX - 8}")), "y2": at(expr("height"))}
    name: Spec = {"text": "failed", "align": "right", "color": palette.faint, "fontSize": 11}
    return [
        layer("rect", "lane", strip, color=palette.lane),
        layer("text", "lane", {"x": at(-7), "y": lane_middle()}, **name),
    ]


def mark_area_px(count: int) -> int:
    """Return the area of a mark where so many are drawn."""
    return 90 if count <= 150 else 45 if count <= 800 else 22
