"""Figures of single layouts: throughput by accumulation, memory by rank, and power over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from autotune.measurement import AccumulationMeasurement, accumulations
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import (
    Accumulation,
    Campaign,
    FigureTable,
    Recommendation,
    Trial,
    TrialPower,
    Wire,
)
from autotune.wording import figure
from server.figures.comparison import COLOURS, DASHES
from server.figures.figure import Figure
from server.figures.style import (
    FIGURE,
    PALETTES,
    Palette,
    Scheme,
    by_value,
    finish,
    legend,
    limit_line,
)
from server.figures.vega import Spec, layer, nominal, ordinal, quantitative
from server.wording import count, mark, plural, power_summary, seconds, strategy_line

HEIGHT_PX = 200
PREDICTED = "predicted"


class AccumulationSeries(Wire):
    """Throughput of one layout at each GAS: what was measured, and what the law says."""

    strategy: str
    simulated: bool
    points: list[Accumulation]


class RankMemory(Wire):
    rank: int
    peak_memory_gib: float


class MemorySeries(Wire):
    """Peak memory of each rank against one GPU's limit, GiB."""

    limit_gib: Annotated[float, Field(gt=0)]
    simulated: bool
    ranks: list[RankMemory]


def accumulation_series(campaign: Campaign, trial: Trial) -> AccumulationSeries:
    """Return the throughput at each GAS that a trial's measurements tell of, smallest first."""
    measured = [
        AccumulationMeasurement(
            gradient_accumulation_steps=point.gradient_accumulation_steps,
            iteration_times_s=tuple(point.iteration_times_s),
        )
        for point in trial.accumulations
        if point.iteration_times_s
    ]
    points = accumulations(
        transformer_of(campaign.model).with_layers(trial.num_layers),
        machine_of(campaign.machine),
        strategy_of(trial.strategy),
        measured,
    )
    return AccumulationSeries(
        strategy=strategy_line(trial.strategy), simulated=trial.simulated, points=points
    )


def best_accumulation_series(recommendation: Recommendation) -> AccumulationSeries:
    """Return the best layout's throughput at each GAS, from all its trials together."""
    return AccumulationSeries(
        strategy=strategy_line(recommendation.best.strategy),
        simulated=recommendation.simulated,
        points=recommendation.accumulations,
    )


def memory_series(trial: Trial, *, limit_gib: float) -> MemorySeries:
    """Return the peak memory of each rank of one trial."""
    ranks = enumerate(trial.peak_memory_gib_by_rank)
    return MemorySeries(
        limit_gib=limit_gib,
        simulated=trial.simulated,
        ranks=[RankMemory(rank=rank, peak_memory_gib=gib) for rank, gib in ranks],
    )


def accumulation_figure(series: AccumulationSeries, *, scheme: Scheme = "light") -> Figure:
    """Return tokens/s by GAS: measured points filled, predicted ones hollow, one line through."""
    kinds = [mark(series.simulated), PREDICTED]
    rows = [
        {
            "gas": point.gradient_accumulation_steps,
            "batch": point.global_batch_size,
            "tokens_per_s": point.tokens_per_s,
            "iteration_time": seconds(point.iteration_time_s),
            "kind": kinds[not point.measured],
        }
        for point in series.points
    ]
    table = FigureTable(
        columns=["GAS", "Global batch", "Iteration", "Tokens/s", "From"],
        rows=[
            [
                str(row["gas"]),
                count(point.global_batch_size),
                str(row["iteration_time"]),
                figure(point.tokens_per_s),
                str(row["kind"]),
            ]
            for row, point in zip(rows, series.points, strict=True)
        ],
    )
    palette = PALETTES[scheme]
    return Figure(
        name="accumulations",
        title="Throughput by gradient accumulation",
        caption=_accumulation_caption(series),
        table=table,
        specification=finish(
            _accumulation_layers(palette, kinds, [point["gas"] for point in rows]),
            palette,
            {"points": rows},
            height=HEIGHT_PX,
        ),
        scheme=scheme,
    )


def _accumulation_layers(
    palette: Palette, kinds: Sequence[str], ticks: Sequence[Any]
) -> list[Spec]:
    place = {
        "x": quantitative(
            "gas",
            title="gradient accumulation steps",
            axis={"values": list(ticks)},
            scale={"type": "log", "base": 2, "nice": False, "padding": 10},
        ),
        "y": quantitative("tokens_per_s", title="tokens/s", axis={"format": "~s", "tickCount": 5}),
    }
    filled = by_value(kinds, [palette.measured, "transparent"])
    point = place | {
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
    return [
        layer("line", "points", place, color=blue, strokeWidth=1.2, strokeOpacity=0.6),
        layer("point", "points", point, size=60, stroke=blue, strokeWidth=1.5),
    ]


def _accumulation_caption(series: AccumulationSeries) -> str:
    measured = [point for point in series.points if point.measured]
    if not measured:
        return ""
    steps = ", ".join(str(point.gradient_accumulation_steps) for point in measured)
    best = max(series.points, key=lambda point: point.tokens_per_s)
    how = mark(series.simulated)
    origin = how if best.measured else PREDICTED
    return (
        f"{how.capitalize()} at {steps} accumulation steps; "
        f"most at {best.gradient_accumulation_steps}: "
        f"{figure(best.tokens_per_s)} tokens/s ({origin})."
    )


def memory_figure(series: MemorySeries, *, scheme: Scheme = "light") -> Figure:
    """Return the peak memory of each rank as bars, under the line of one GPU's limit."""
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
    told = [[str(rank.rank), figure(rank.peak_memory_gib)] for rank in series.ranks]
    peaks = [rank.peak_memory_gib for rank in series.ranks]
    caption = ""
    if peaks:
        caption = (
            f"{plural(len(peaks), 'rank')}: from {figure(min(peaks))} to {figure(max(peaks))} GiB, "
            f"of {figure(series.limit_gib)} GiB each."
        )
    return Figure(
        name="memory",
        title="Peak memory by rank",
        caption=caption,
        table=FigureTable(columns=["Rank", "GiB"], rows=told),
        specification=finish(layers, palette, rows, height=HEIGHT_PX),
        scheme=scheme,
    )


def power_figure(power: TrialPower, *, scheme: Scheme = "light") -> Figure:
    """Return the power of each node's GPUs over time, a line for each node, behind it the seconds
    from which energy was computed.

    Of more nodes than there are colours all lines look alike, and tell their node under the mouse.
    """
    palette = PALETTES[scheme]
    rows = {
        "points": [
            {"node": node.node, "at_s": at_s, "watts": watts}
            for node in power.nodes
            for at_s, watts in zip(node.at_s, node.watts, strict=True)
        ],
        "windows": [each.model_dump() for each in power.energy_windows],
    }
    told = [
        [node.node, count(node.samples)]
        + [figure(watts) for watts in (min(node.watts), node.mean_watts, max(node.watts))]
        for node in power.nodes
    ]
    columns = ["Node", "Samples", "Least W", "Mean W", "Most W"]
    return Figure(
        name="power",
        title="Power of the GPUs over time",
        caption=power_summary(power),
        table=FigureTable(columns=columns, rows=told),
        specification=finish(
            _power_layers(palette, [node.node for node in power.nodes]),
            palette,
            rows,
            height=HEIGHT_PX,
        ),
        scheme=scheme,
    )


def _power_layers(palette: Palette, nodes: Sequence[str]) -> list[Spec]:
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
    return [
        layer("rect", "windows", window, color=palette.measured, opacity=0.15, **edge),
        layer("line", "points", line, color=palette.measured, strokeWidth=1.5, opacity=opacity),
        layer("point", "points", hovered, size=40, opacity=0),
    ]
