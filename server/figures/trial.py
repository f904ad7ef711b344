"""Figures of single layouts: throughput by accumulation, memory by rank, and power over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from autotune.measurement import AccumulationMeasurement, accumulations
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas.campaigns import Campaign
from autotune.schemas.figures import FigureTable
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Accumulation, Trial, TrialPower
from autotune.schemas.wire import Wire
from autotune.wording import figure
from server.figures.figure import Cells, Figure, rows_of, table_of, tooltip
from server.figures.vega import (
    FIGURE,
    PALETTES,
    SERIES,
    Scheme,
    Spec,
    by_value,
    finish,
    layer,
    limit_line,
    nominal,
    ordinal,
    quantitative,
    series_channels,
)
from server.wording import count, mark, plural, power_summary, seconds, strategy_line

HEIGHT_PX = 200
PREDICTED = "predicted"


class LayoutFigure(Figure):
    """A figure of one layout; `name` stands in its address."""

    name: ClassVar[str]


class AccumulationFigure(LayoutFigure):
    """Throughput of one layout at each GAS: measured points filled, predicted ones hollow."""

    name = "accumulations"
    strategy: str
    simulated: bool
    points: list[Accumulation]

    @classmethod
    def of(
        cls, strategy: str, points: Sequence[Accumulation], *, simulated: bool
    ) -> AccumulationFigure:
        return cls(
            title="Throughput by gradient accumulation",
            caption=_accumulation_caption(points, simulated=simulated),
            table=table_of(_cells(simulated), points),
            strategy=strategy,
            simulated=simulated,
            points=list(points),
        )

    @classmethod
    def of_trial(cls, campaign: Campaign, trial: Trial) -> AccumulationFigure:
        """Return the figure of a trial: measured and derived from its measurements."""
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
        return cls.of(strategy_line(trial.strategy), points, simulated=trial.simulated)

    @classmethod
    def of_best(cls, recommendation: Recommendation) -> AccumulationFigure:
        """Return the figure of the best layout, from all its trials."""
        return cls.of(
            strategy_line(recommendation.best.strategy),
            recommendation.accumulations,
            simulated=recommendation.simulated,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette, cells = PALETTES[scheme], _cells(self.simulated)
        blue = palette.measured
        place = {
            "x": quantitative(
                "gradient_accumulation_steps",
                title="gradient accumulation steps",
                axis={"values": [point.gradient_accumulation_steps for point in self.points]},
                scale={"type": "log", "base": 2, "nice": False, "padding": 10},
            ),
            "y": quantitative(
                "tokens_per_s", title="tokens/s", axis={"format": "~s", "tickCount": 5}
            ),
        }
        filled = by_value([mark(self.simulated), PREDICTED], [blue, "transparent"])
        fill = nominal("From", title=None, scale=filled)
        point = place | {"fill": fill, "tooltip": tooltip(cells)}
        layers = [
            layer("line", "points", place, color=blue, strokeWidth=1.2, strokeOpacity=0.6),
            layer("point", "points", point, size=60, stroke=blue, strokeWidth=1.5),
        ]
        return finish(layers, palette, {"points": rows_of(cells, self.points)}, height=HEIGHT_PX)


def _cells(simulated: bool) -> Cells[Accumulation]:
    return {
        "GAS": lambda point: str(point.gradient_accumulation_steps),
        "Global batch": lambda point: count(point.global_batch_size),
        "Iteration": lambda point: seconds(point.iteration_time_s),
        "Tokens/s": lambda point: figure(point.tokens_per_s),
        "From": lambda point: mark(simulated) if point.measured else PREDICTED,
    }


def _accumulation_caption(points: Sequence[Accumulation], *, simulated: bool) -> str:
    measured = [point for point in points if point.measured]
    if not measured:
        return ""
    steps = ", ".join(str(point.gradient_accumulation_steps) for point in measured)
    best = max(points, key=lambda point: point.tokens_per_s)
    how = mark(simulated)
    return (
        f"{how.capitalize()} at {steps} accumulation steps; "
        f"most at {best.gradient_accumulation_steps}: "
        f"{figure(best.tokens_per_s)} tokens/s ({how if best.measured else PREDICTED})."
    )


class RankMemory(Wire):
    rank: int
    peak_memory_gib: float


RANK_CELLS: Cells[RankMemory] = {
    "Rank": lambda rank: str(rank.rank),
    "GiB": lambda rank: figure(rank.peak_memory_gib),
}


class RankMemoryFigure(LayoutFigure):
    """Peak memory of each rank, and the memory of a GPU, GiB."""

    name = "memory"
    limit_gib: Annotated[float, Field(gt=0)]
    simulated: bool
    ranks: list[RankMemory]

    @classmethod
    def of(cls, trial: Trial, *, limit_gib: float) -> RankMemoryFigure:
        peaks = trial.peak_memory_gib_by_rank
        ranks = [RankMemory(rank=rank, peak_memory_gib=gib) for rank, gib in enumerate(peaks)]
        caption = ""
        if peaks:
            caption = (
                f"{plural(len(peaks), 'rank')}: from {figure(min(peaks))} to {figure(max(peaks))} "
                f"GiB, of {figure(limit_gib)} GiB each."
            )
        return cls(
            title="Peak memory by rank",
            caption=caption,
            table=table_of(RANK_CELLS, ranks),
            limit_gib=limit_gib,
            simulated=trial.simulated,
            ranks=ranks,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette, title = PALETTES[scheme], "peak memory, GiB"
        bar = {
            "x": ordinal("rank", title="rank", axis={"labelAngle": 0, "labelOverlap": "greedy"}),
            "y": quantitative("peak_memory_gib", title=title, scale={"zero": True}),
            "tooltip": tooltip(RANK_CELLS),
        }
        layers = [
            layer("bar", "ranks", bar, color=palette.measured),
            limit_line("limit", {"y": quantitative("limit_gib", title=title)}, palette),
        ]
        limit = [{"limit_gib": self.limit_gib}]
        rows = {"ranks": rows_of(RANK_CELLS, self.ranks), "limit": limit}
        return finish(layers, palette, rows, height=HEIGHT_PX)


class PowerFigure(TrialPower, LayoutFigure):
    """Power of each node's GPUs over time, and the windows from which energy was computed.

    With more nodes than colours, all lines look alike; the tooltip names the node.
    """

    name = "power"

    @classmethod
    def of(cls, power: TrialPower) -> PowerFigure:
        rows = [
            [
                node.node,
                count(node.samples),
                figure(min(node.watts)),
                figure(node.mean_watts),
                figure(max(node.watts)),
            ]
            for node in power.nodes
        ]
        columns = ["Node", "Samples", "Least W", "Mean W", "Most W"]
        return cls(
            title="Power of the GPUs over time",
            caption=power_summary(power),
            table=FigureTable(columns=columns, rows=rows),
            **dict(power),
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        nodes = [node.node for node in self.nodes]
        few = len(nodes) <= len(SERIES)
        x_title = "seconds since the trial's start"
        line = place = {
            "x": quantitative("at_s", title=x_title, scale={"zero": False}),
            "y": quantitative("watts", title="power of a node's GPUs, W", scale={"zero": True}),
            "detail": nominal("node"),
        }
        if few:
            colour, dashes = series_channels("node", nodes, scheme)
            line = place | {"color": colour, "strokeDash": dashes}
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
        points = [
            {"node": node.node, "at_s": at_s, "watts": watts}
            for node in self.nodes
            for at_s, watts in zip(node.at_s, node.watts, strict=True)
        ]
        windows = [each.model_dump() for each in self.energy_windows]
        rows = {"points": points, "windows": windows}
        return finish(layers, palette, rows, height=HEIGHT_PX)
