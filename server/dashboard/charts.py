"""The charts of one layout, as Vega-Lite: throughput by accumulation, memory by rank, and power
over time."""

from __future__ import annotations

from autotune.schemas import TrialPower
from server.dashboard.series import AccumulationSeries, MemorySeries
from server.figures.comparison import COLOURS, DASHES
from server.figures.style import FIGURE, PALETTES, Scheme, by_value, finish, legend, limit_line
from server.figures.vega import Spec, layer, nominal, ordinal, quantitative
from server.wording import seconds


def accumulation_chart(series: AccumulationSeries, *, scheme: Scheme = "light") -> Spec:
    """Draw tokens/s by GAS: measured points filled, predicted ones hollow, one line through."""
    palette = PALETTES[scheme]
    kinds = ["simulated" if series.simulated else "measured", "predicted"]
    place = {
        "x": quantitative(
            "gas",
            title="gradient accumulation steps",
            axis={"values": [point.gradient_accumulation_steps for point in series.points]},
            scale={"type": "log", "base": 2, "nice": False, "padding": 10},
        ),
        "y": quantitative("tokens_per_s", title="tokens/s", axis={"format": "~s", "tickCount": 5}),
    }
    filled = by_value(kinds, [palette.measured, "transparent"])
    mark = place | {
        "fill": nominal("kind", title=None, scale=filled),
        "tooltip": [
            ordinal("gas", title="accumulation steps"),
            ordinal("batch", title="global batch"),
            quantitative("tokens_per_s", title="tokens/s", format=FIGURE),
            nominal("iteration_time", title="iteration"),
            nominal("kind", title="figures"),
        ],
    }
    blue = palette.measured
    layers = [
        layer("line", "points", place, color=blue, strokeWidth=1.2, strokeOpacity=0.6),
        layer("point", "points", mark, size=60, stroke=blue, strokeWidth=1.5),
    ]
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
    palette = PALETTES[scheme]
    title = "peak memory, GiB"
    bar = {
        "x": ordinal("rank", title="rank", axis={"labelAngle": 0, "labelOverlap": "greedy"}),
        "y": quantitative("peak_memory_gib", title=title, scale={"zero": True}),
        "tooltip": [
            ordinal("rank", title="rank"),
            quantitative("peak_memory_gib", title=title, format=FIGURE),
        ],
    }
    layers = [
        layer("bar", "ranks", bar, color=palette.measured),
        limit_line("limit", {"y": quantitative("limit_gib", title=title)}, palette),
    ]
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
    palette = PALETTES[scheme]
    nodes = [node.node for node in power.nodes]
    few = len(nodes) <= len(COLOURS)
    place = {
        "x": quantitative("at_s", title="seconds since the trial's start", scale={"zero": False}),
        "y": quantitative("watts", title="power of a node's GPUs, W", scale={"zero": True}),
        "detail": nominal("node"),
    }
    line, told = place, legend(nodes)
    if few:
        colours = by_value(nodes, COLOURS[: len(nodes)])
        dashes = by_value(nodes, [DASHES[n % len(DASHES)] for n in range(len(nodes))])
        line = place | {
            "color": nominal("node", legend=told, scale=colours),
            "strokeDash": nominal("node", legend=told, scale=dashes),
        }
    hovered = place | {
        "tooltip": [
            nominal("node", title="node"),
            quantitative("at_s", title="s", format=FIGURE),
            quantitative("watts", title="W", format=FIGURE),
        ]
    }
    window = {"x": quantitative("start_s"), "x2": {"field": "end_s"}}
    edge: Spec = {"stroke": palette.faint, "strokeDash": [4, 3]}
    opacity = 1.0 if few else 0.4
    layers = [
        layer("rect", "windows", window, color=palette.measured, opacity=0.15, **edge),
        layer("line", "points", line, color=palette.measured, strokeWidth=1.5, opacity=opacity),
        layer("point", "points", hovered, size=40, opacity=0),
    ]
    rows = {
        "points": [
            {"node": node.node, "at_s": at_s, "watts": watts}
            for node in power.nodes
            for at_s, watts in zip(node.at_s, node.watts, strict=True)
        ],
        "windows": [each.model_dump() for each in power.energy_windows],
    }
    return finish(layers, palette, rows, height=200)
