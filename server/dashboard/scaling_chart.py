"""The line of a layout's efficiency over nodes, as a page draws it without a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2

from autotune.schemas import ScaledStrategy, ScalingSeries

WIDTH, HEIGHT = 360.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 14.0, 12.0, 40.0
"""Of the picture, in pixels at its own size, and what its axes take of each side."""

INSET = 10.0
"""Of the first mark from the axis, that it covers no label."""

STEP = 0.25
"""Of the efficiency, between two lines of the grid."""


@dataclass(frozen=True, kw_only=True)
class ChartMark:
    """One point: where it is, and where its interval ends."""

    x: float
    y: float
    low: float
    high: float
    measured: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class ChartTick:
    """A place of an axis with its label."""

    place: float
    label: str


@dataclass(frozen=True, kw_only=True)
class ScalingChart:
    """Efficiency over nodes, these by their logarithm; `ideal` is the height of 100 %.

    Attributes:
        line, band: points of the line and of the interval round it, as SVG has them.
    """

    series: ScalingSeries
    marks: Sequence[ChartMark]
    line: str
    band: str
    ideal: float
    x_ticks: Sequence[ChartTick]
    y_ticks: Sequence[ChartTick]

    @classmethod
    def of(cls, series: ScalingSeries) -> ScalingChart:
        points = series.points
        first, last = log2(points[0].num_nodes), log2(points[-1].num_nodes)
        most = max(1.0, *(point.efficiency_high for point in points))
        top = STEP * -(-most // STEP)

        def across(nodes: int) -> float:
            share = (log2(nodes) - first) / (last - first) if last > first else 0.5
            return LEFT + INSET + share * (WIDTH - LEFT - INSET - RIGHT)

        def up(efficiency: float) -> float:
            return TOP + (1.0 - efficiency / top) * (HEIGHT - TOP - BOTTOM)

        marks = [
            ChartMark(
                x=across(point.num_nodes),
                y=up(point.efficiency),
                low=up(point.efficiency_low),
                high=up(point.efficiency_high),
                measured=point.measured,
                words=_words(point),
            )
            for point in points
        ]
        upper = [(mark.x, mark.high) for mark in marks]
        lower = [(mark.x, mark.low) for mark in reversed(marks)]
        return cls(
            series=series,
            marks=marks,
            line=_joined([(mark.x, mark.y) for mark in marks]),
            band=_joined([*upper, *lower]),
            ideal=up(1.0),
            x_ticks=[
                ChartTick(place=across(point.num_nodes), label=f"{point.num_nodes:,}")
                for point in points
            ],
            y_ticks=[
                ChartTick(place=up(number * STEP), label=f"{100 * number * STEP:.0f} %")
                for number in range(round(top / STEP) + 1)
            ],
        )


def _joined(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _words(point: ScaledStrategy) -> str:
    origin = "measured" if point.measured else "predicted"
    return (
        f"{point.num_nodes:,} nodes: {100 * point.efficiency:.1f} % {origin} "
        f"(80 %: {100 * point.efficiency_low:.1f} to {100 * point.efficiency_high:.1f} %)"
    )
