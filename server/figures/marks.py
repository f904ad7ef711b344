"""Marks of trials: one colour and shape for each outcome, and the strip in which failures stand."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from server.figures.outcome import SHAPES, Outcome, outcomes
from server.figures.style import Palette

FAILURE_LANE_PX = 34
"""Height of the strip below the axis's zero where failures stand."""

LANE_ROWS = {"lane": [{"lane": "failures"}]}
"""Rows of the strip itself: exactly one."""


def outcome_channels(
    palette: Palette, *, simulated: bool, drawn: Collection[Outcome] | None = None
) -> tuple[Any, Any]:
    """Return the colour and the shape of marks by the field `outcome`; the legend has the outcomes
    in `drawn` alone, or else all that there may be."""
    import altair as alt

    possible = outcomes(simulated=simulated)
    names = [outcome.value for outcome in possible]
    shown = [outcome.value for outcome in possible if drawn is None or outcome in drawn]
    colours = alt.Scale(domain=names, range=[palette.of(outcome) for outcome in possible])
    shapes = alt.Scale(domain=names, range=[SHAPES[outcome] for outcome in possible])
    legend = alt.Legend(values=shown)
    return (
        alt.Color("outcome:N", title=None, scale=colours, legend=legend),
        alt.Shape("outcome:N", title=None, scale=shapes, legend=legend),
    )


def above_lane() -> list[Any]:
    """Return the range of a vertical scale that leaves the strip free."""
    import altair as alt

    return [alt.expr(f"height - {FAILURE_LANE_PX}"), 0]


def lane_middle() -> Any:
    """Return the vertical place of marks in the strip."""
    import altair as alt

    return alt.value(alt.expr(f"height - {(FAILURE_LANE_PX - 8) / 2}"))


def lane_layers(palette: Palette) -> list[Any]:
    """Return the strip and its name; they need LANE_ROWS."""
    import altair as alt

    lane = alt.Chart(alt.NamedData("lane")).mark_rect(color=palette.lane)
    label = alt.Chart(alt.NamedData("lane")).mark_text(
        text="failed", align="right", color=palette.faint, fontSize=11
    )
    return [
        lane.encode(
            y=alt.value(alt.expr(f"height - {FAILURE_LANE_PX - 8}")),
            y2=alt.value(alt.expr("height")),
        ),
        label.encode(x=alt.value(-7), y=lane_middle()),
    ]


def mark_area_px(count: int) -> int:
    """Return the area of a mark where so many are drawn."""
    return 90 if count <= 150 else 45 if count <= 800 else 22
