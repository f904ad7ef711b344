"""The charts of one layout, as Vega-Lite: throughput by accumulation, memory by rank, and power
over time."""

from __future__ import annotations

from autotune.schemas import TrialPower
from server.dashboard.series import AccumulationSeries, MemorySeries
from server.dashboard.wording import seconds
from server.figures.comparison import COLOURS, DASHES
from server.figures.style import FIGURE, PALETTES, Scheme, Spec, finish, legend


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


def power_chart(power: TrialPower, *, scheme: Scheme = "light") -> Spec:
    """Draw the power of each node's GPUs over time, a line for each node, behind it the seconds
    from which energy was computed.

    Of more nodes than there are colours all lines look alike, and tell their node under the mouse.
    """
    import altair as alt

    palette = PALETTES[scheme]
    nodes = [node.node for node in power.nodes]
    few = len(nodes) <= len(COLOURS)
    x = alt.X("at_s:Q", title="seconds since the trial's start", scale=alt.Scale(zero=False))
    y = alt.Y("watts:Q", title="power of a node's GPUs, W", scale=alt.Scale(zero=True))
    base = alt.Chart(alt.NamedData("points")).encode(x=x, y=y, detail="node:N")
    line = base.mark_line(color=palette.measured, strokeWidth=1.5, opacity=1.0 if few else 0.4)
    if few:
        colours = alt.Scale(domain=nodes, range=list(COLOURS[: len(nodes)]))
        dashes = [DASHES[n % len(DASHES)] for n in range(len(nodes))]
        line = line.encode(
            color=alt.Color("node:N", legend=legend(nodes), scale=colours),
            strokeDash=alt.StrokeDash(
                "node:N", legend=legend(nodes), scale=alt.Scale(domain=nodes, range=dashes)
            ),
        )
    hovered = base.mark_point(size=40, opacity=0).encode(
        tooltip=[
            alt.Tooltip("node:N", title="node"),
            alt.Tooltip("at_s:Q", title="s", format=FIGURE),
            alt.Tooltip("watts:Q", title="W", format=FIGURE),
        ]
    )
    windows = alt.Chart(alt.NamedData("windows")).mark_rect(
        color=palette.measured, opacity=0.15, stroke=palette.faint, strokeDash=[4, 3]
    )
    layers = alt.layer(windows.encode(x="start_s:Q", x2="end_s:Q"), line, hovered)
    rows = {
        "points": [
            {"node": node.node, "at_s": at_s, "watts": watts}
            for node in power.nodes
            for at_s, watts in zip(node.at_s, node.watts, strict=True)
        ],
        "windows": [window.model_dump() for window in power.energy_windows],
    }
    return finish(layers, palette, rows, height=200)
