"""The charts of one layout, as Vega-Lite: throughput by accumulation, and memory by rank."""

from __future__ import annotations

from server.dashboard.series import AccumulationSeries, MemorySeries
from server.dashboard.wording import seconds
from server.figures.style import FIGURE, PALETTES, Scheme, Spec, finish


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
    kinds = ["simulated" if series.simulated else "measured", "predicted"]
    fill = alt.Fill(
        "kind:N", title=None, scale=alt.Scale(domain=kinds, range=[palette.measured, "transparent"])
    )
    tooltip = [
        alt.Tooltip("gas:O", title="accumulation steps"),
        alt.Tooltip("batch:O", title="global batch"),
        alt.Tooltip("tokens_per_s:Q", title="tokens/s", format=FIGURE),
        alt.Tooltip("iteration_time:N", title="iteration"),
        alt.Tooltip("kind:N", title="figures"),
    ]
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
    return finish(layers, palette, {"points": rows}, height=200)


def memory_chart(series: MemorySeries, *, scheme: Scheme = "light") -> Spec:
    """Draw the peak memory of each rank as bars, under the line of one GPU's limit."""
    import altair as alt

    palette = PALETTES[scheme]
    y_title = "peak memory, GiB"
    bars = alt.Chart(alt.NamedData("ranks")).mark_bar(color=palette.measured)
    bars = bars.encode(
        x=alt.X("rank:O", title="rank", axis=alt.Axis(labelAngle=0, labelOverlap="greedy")),
        y=alt.Y("peak_memory_gib:Q", title=y_title, scale=alt.Scale(zero=True)),
        tooltip=[
            alt.Tooltip("rank:O", title="rank"),
            alt.Tooltip("peak_memory_gib:Q", title=y_title, format=FIGURE),
        ],
    )
    limit = alt.Chart(alt.NamedData("limit")).mark_rule(
        color=palette.oom, strokeDash=[5, 4], strokeWidth=1.5
    )
    layers = alt.layer(bars, limit.encode(y=alt.Y("limit_gib:Q", title=y_title)))
    rows = {
        "ranks": [rank.model_dump() for rank in series.ranks],
        "limit": [{"limit_gib": series.limit_gib}],
    }
    return finish(layers, palette, rows, height=200)
