"""The charts, defined once as Vega-Lite with Altair; each is a plain specification with its rows.

Altair is imported at the first chart, so that starting the service does not wait for it. Rows go
into `datasets` after `to_dict()`, which is a hundred times faster than handing them to Altair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from server.dashboard.series import (
    AccumulationSeries,
    MemorySeries,
    Outcome,
    Trajectory,
)
from server.dashboard.wording import seconds

Scheme = Literal["light", "dark"]
Spec = dict[str, Any]

FAILURE_LANE_PX = 34
"""Height of the strip below the axis's zero where failures stand."""

SHAPES = {
    Outcome.MEASURED: "circle",
    Outcome.CONFIRMED: "diamond",
    Outcome.OOM: "triangle-down",
    Outcome.TIMEOUT: "square",
    Outcome.CRASHED: "cross",
    Outcome.OTHER: "triangle-right",
}


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme: the marks are Okabe and Ito's (Color Universal Design, 2008)."""

    text: str
    faint: str
    grid: str
    lane: str
    measured: str
    confirmed: str
    other: str
    oom: str = "#D55E00"
    timeout: str = "#E69F00"
    crashed: str = "#CC79A7"

    def of(self, outcome: Outcome) -> str:
        return {
            Outcome.MEASURED: self.measured,
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
        measured="#0072B2",
        confirmed="#009E73",
        other="#6b7280",
    ),
    "dark": Palette(
        text="#e8ecf1",
        faint="#a3adba",
        grid="#2b333e",
        lane="#2a2320",
        measured="#56B4E9",
        confirmed="#2fc79b",
        other="#b3bac4",
    ),
}


def trajectory_chart(series: Trajectory, *, scheme: Scheme = "light") -> Spec:
    """Draw the objective by trial or time, the best so far as steps, failures in a strip below.

    A dashed line is the baseline's objective.

    `usermeta` holds the rest of the series, so that a page need not ask for it as well.
    """
    import altair as alt

    palette = PALETTES[scheme]
    x = alt.X(
        "x:Q",
        title=series.x_title,
        axis=_axis(series.finished > 0, **({"tickMinStep": 1} if series.by == "trial" else {})),
        scale=_scale(series.finished > 0, nice=False, padding=8),
    )
    y = alt.Y(
        "objective:Q",
        title=series.objective_title,
        axis=_axis(bool(series.best), format="~s", tickCount=6),
        scale=_scale(bool(series.best), range=[alt.expr(f"height - {FAILURE_LANE_PX}"), 0]),
    )
    names = [outcome.value for outcome in Outcome]
    colours = alt.Scale(domain=names, range=[palette.of(outcome) for outcome in Outcome])
    colour = alt.Color("outcome:N", title=None, scale=colours)
    shapes = alt.Scale(domain=names, range=[SHAPES[outcome] for outcome in Outcome])
    shape = alt.Shape("outcome:N", title=None, scale=shapes)
    tooltip = ["number:O", "strategy:N", "outcome:N", "objective:Q", "note:N"]
    lane = alt.Chart(alt.NamedData("lane")).mark_rect(color=palette.lane)
    lane = lane.encode(
        y=alt.value(alt.expr(f"height - {FAILURE_LANE_PX - 8}")), y2=alt.value(alt.expr("height"))
    )
    middle = alt.value(alt.expr(f"height - {(FAILURE_LANE_PX - 8) / 2}"))
    label = alt.Chart(alt.NamedData("lane")).mark_text(
        text="failed", align="right", color=palette.faint, fontSize=11
    )
    best = alt.Chart(alt.NamedData("best")).mark_line(
        interpolate="step-after", color=palette.text, strokeWidth=1.5, strokeOpacity=0.75
    )
    area_px = 90 if series.drawn <= 150 else 45 if series.drawn <= 800 else 22
    marks: Spec = {"filled": True, "size": area_px, "strokeWidth": 0}
    measured = alt.Chart(alt.NamedData("measured")).mark_point(opacity=0.85, **marks)
    failed = alt.Chart(alt.NamedData("failed")).mark_point(opacity=1, **marks)
    level = alt.Chart(alt.NamedData("baseline")).encode(y=y)
    rule = level.mark_rule(color=palette.faint, strokeDash=[5, 4], strokeWidth=1.5)
    named = level.mark_text(align="left", dx=4, dy=-6, color=palette.faint, fontSize=11)
    layers = alt.layer(
        lane,
        label.encode(x=alt.value(-7), y=middle),
        rule,
        named.encode(x=alt.value(0), text="label:N"),
        best.encode(x=x, y=y),
        measured.encode(x=x, y=y, color=colour, shape=shape, tooltip=tooltip),
        failed.encode(
            x=x,
            y=middle,
            color=colour,
            shape=shape,
            tooltip=tooltip,
        ),
    )
    spec = _finish(layers, palette, trajectory_rows(series), height=320)
    return spec | {"usermeta": series.model_dump(mode="json", exclude={"points"})}


def trajectory_rows(series: Trajectory) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each of the trajectory's named datasets."""
    rows = [point.model_dump(mode="json") for point in series.points]
    return {
        "lane": [{"lane": "failures"}],
        "measured": [row for row in rows if row["objective"] is not None],
        "failed": [row for row in rows if row["objective"] is None],
        "baseline": [series.baseline.model_dump()] if series.baseline else [],
        "best": [step.model_dump(mode="json") for step in series.best],
    }


def accumulation_chart(series: AccumulationSeries, *, scheme: Scheme = "light") -> Spec:
    """Draw tokens/s by GAS: measured points filled, predicted ones hollow, one line through."""
    import altair as alt

    palette = PALETTES[scheme]
    x = alt.X(
        "gas:Q",
        title="gradient accumulation steps",
        axis=alt.Axis(values=[point.gradient_accumulation_steps for point in series.points]),
        scale=alt.Scale(type="log", base=2, nice=False, padding=10),
    )
    y = alt.Y("tokens_per_s:Q", title="tokens/s", axis=alt.Axis(format="~s", tickCount=5))
    kinds = ["measured", "predicted"]
    fill = alt.Fill(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[palette.measured, "transparent"])
    )
    tooltip = ["gas:O", "batch:O", "tokens_per_s:Q", "iteration_time:N", "kind:N"]
    base = alt.Chart(alt.NamedData("points")).encode(x=x, y=y)
    line = base.mark_line(color=palette.measured, strokeWidth=1.2, strokeOpacity=0.6)
    marks = base.mark_point(size=60, stroke=palette.measured, strokeWidth=1.5)
    layers = alt.layer(line, marks.encode(fill=fill, tooltip=tooltip))
    rows = [
        {
            "gas": point.gradient_accumulation_steps,
            "batch": point.global_batch_size,
            "tokens_per_s": point.tokens_per_s,
            "iteration_time": seconds(point.iteration_time_s),
            "kind": kinds[0] if point.measured else kinds[1],
        }
        for point in series.points
    ]
    return _finish(layers, palette, {"points": rows}, height=200)


def memory_chart(series: MemorySeries, *, scheme: Scheme = "light") -> Spec:
    """Draw the peak memory of each rank as bars, under the line of one GPU's limit."""
    import altair as alt

    palette = PALETTES[scheme]
    y_title = "peak memory, GiB"
    bars = alt.Chart(alt.NamedData("ranks")).mark_bar(color=palette.measured)
    bars = bars.encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
        y=alt.Y("peak_memory_gib:Q", title=y_title, scale=alt.Scale(zero=True)),
        tooltip=["rank:O", "peak_memory_gib:Q"],
    )
    limit = alt.Chart(alt.NamedData("limit")).mark_rule(
        color=palette.oom, strokeDash=[5, 4], strokeWidth=1.5
    )
    layers = alt.layer(bars, limit.encode(y=alt.Y("limit_gib:Q", title=y_title)))
    rows = {
        "ranks": [rank.model_dump() for rank in series.ranks],
        "limit": [{"limit_gib": series.limit_gib}],
    }
    return _finish(layers, palette, rows, height=200)


def _finish(
    layers: Any, palette: Palette, rows: dict[str, list[dict[str, Any]]], *, height: int
) -> Spec:
    """Return the layers as a specification with its rows, in the colours of the palette."""
    spec: Spec = layers.properties(width="container", height=height).to_dict()
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
            "columns": {"expr": "width < 420 ? 2 : 3"},
            "labelColor": palette.text,
            "labelFontSize": 12,
            "symbolSize": 80,
            "columnPadding": 18,
        },
    }
    return spec | {"datasets": rows, "config": config, "background": "transparent"}


def _axis(has_rows: bool, **options: Any) -> Any:
    """Return an axis; without ticks where there is nothing to read off it."""
    import altair as alt

    return alt.Axis(**options) if has_rows else alt.Axis(values=[])


def _scale(has_rows: bool, **options: Any) -> Any:
    """Return a scale from zero up; of any length where there is nothing to span it."""
    import altair as alt

    extent: Spec = {"zero": True} if has_rows else {"domain": [0, 1]}
    return alt.Scale(**extent, **options)
