"""The Pareto front of the rate against nodes or energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autotune.recommendation.ranking import COSTS, pareto_fronts
from autotune.schemas.choices import ParetoCost
from autotune.schemas.wire import Wire
from autotune.words.quantities import figure, plural
from search_spaces.errors import InvalidInput
from server.figures.figure import Cells, DrawnFigure, choice, rows_of, table_of, tooltip
from server.figures.source import FigureSource
from server.figures.vega import (
    PALETTES,
    Scheme,
    Spec,
    by_value,
    finish,
    layer,
    nominal,
    quantitative,
)

TITLES: dict[ParetoCost, str] = {"num_nodes": "nodes", "joules_per_token": "joules per token"}
KINDS = ("on the front", "beaten in both")


class ParetoPoint(Wire):
    """One layout."""

    trial_numbers: list[int]
    """Its trials."""
    strategy: str
    """The strategy as text."""
    cost: float
    """Its cost, in the unit of `against`."""
    tokens_per_s: float
    """Tokens per second."""
    on_front: bool
    """Whether no other layout is better in both."""
    predicted: bool
    """Whether its energy is computed from the machine's power figures, not sampled."""


class ParetoFigure(DrawnFigure):
    """The rate against one cost."""

    named = "Pareto front"
    shows = "the layouts that no other beats in both the rate and its cost in nodes or energy"
    filters = ("against",)

    kind: Literal["pareto"] = "pareto"
    """Kind of figure."""
    against: ParetoCost
    """The cost."""
    offered: list[ParetoCost]
    """Costs in which this campaign's layouts differ."""
    points: list[ParetoPoint]
    """The layouts that ran."""

    @classmethod
    def of(cls, source: FigureSource, *, against: ParetoCost | None = None) -> ParetoFigure:
        """Raise InvalidInput if its layouts do not differ in that cost."""
        offered = costs_of(source)
        cost = against or offered[0]
        if cost not in offered:
            reason = f"the layouts that ran do not differ in {TITLES[cost]}"
            raise InvalidInput("against", cost, reason, valid=", ".join(offered))
        points = _points(source, cost)
        title = f"Pareto front: tokens/s against {'nodes' if cost == 'num_nodes' else 'energy'}"
        return cls._of_campaign(
            source,
            _caption(points, cost),
            title=title,
            table=table_of(_cells(cost), points),
            choices=choice("against", offered, cost),
            against=cost,
            offered=offered,
            points=points,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        if reason := super().missing(source):
            return reason
        return "" if costs_of(source) else "the layouts that ran differ in neither nodes nor energy"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        values = sorted({point.cost for point in self.points})
        whole = self.against == "num_nodes"
        predicted = any(point.predicted for point in self.points)
        x = quantitative(
            "cost",
            title=TITLES[self.against] + (" (predicted)" if predicted else ""),
            axis={"values": values, "format": "d"} if whole else {"format": "~g", "tickCount": 7},
            scale={"zero": False, "nice": False, "padding": 20},
        )
        axis = {"format": "~s", "tickCount": 6}
        y = quantitative("tokens_per_s", title="tokens/s", axis=axis)
        cells = _cells(self.against)
        rows = rows_of(cells, self.points)
        colours = by_value(KINDS, [palette.confirmed, palette.other])
        shapes = by_value(KINDS, ["diamond", "circle"])
        mark = {
            "x": x,
            "y": y,
            "color": nominal("Stands", title=None, scale=colours),
            "shape": nominal("Stands", title=None, scale=shapes),
            "tooltip": tooltip(cells),
        }
        steps: Spec = {"interpolate": "step-after", "color": palette.confirmed, "strokeWidth": 1.5}
        look: Spec = {"filled": True, "size": 90, "opacity": 0.9, "strokeWidth": 0}
        layers = [
            layer("line", "front", {"x": x, "y": y}, **steps),
            layer("point", "points", mark, **look),
        ]
        front = [row for row in rows if row["on_front"]]
        return finish(layers, palette, {"points": rows, "front": front}, height=320)


def _cells(cost: ParetoCost) -> Cells[ParetoPoint]:
    return {
        TITLES[cost].capitalize(): lambda point: (
            figure(point.cost) + (" (predicted)" if point.predicted else "")
        ),
        "tokens/s": lambda point: figure(point.tokens_per_s),
        "Stands": lambda point: KINDS[not point.on_front],
        "Layout": lambda point: point.strategy,
        "Trials": lambda point: ", ".join(map(str, point.trial_numbers)),
    }


def costs_of(source: FigureSource) -> list[ParetoCost]:
    """Return the costs in which the measured layouts differ."""
    ran = [c for c in source.contenders if c.projection is None]
    return [
        name
        for name, cost in COSTS.items()
        if len({round(value, 12) for each in ran if (value := cost(each)) is not None}) > 1
    ]


def _points(source: FigureSource, cost: ParetoCost) -> list[ParetoPoint]:
    front = next(each for each in pareto_fronts(source.contenders) if each.against == cost)
    on_front = [point.strategy for point in front.points]
    points = [
        ParetoPoint(
            trial_numbers=[trial.number for trial in each.trials],
            strategy=each.strategy.short(),
            cost=value,
            tokens_per_s=each.metrics.tokens_per_s,
            on_front=each.strategy in on_front,
            predicted=cost == "joules_per_token" and not each.metrics.energy_sampled,
        )
        for each in source.contenders
        if each.projection is None and (value := COSTS[cost](each)) is not None
    ]
    return sorted(points, key=lambda point: (point.cost, point.tokens_per_s))


def _caption(points: Sequence[ParetoPoint], cost: ParetoCost) -> str:
    front = [point for point in points if point.on_front]
    unit = TITLES[cost]
    if len(front) < 2:
        fast = front[0]
        return (
            f"One layout is on the front: the fastest also costs least, {figure(fast.cost)} {unit}."
        )
    least, fast = front[0], front[-1]
    dearer = fast.cost / least.cost - 1.0
    faster = fast.tokens_per_s / least.tokens_per_s - 1.0
    return (
        f"{plural(len(front), 'layout')} are on the front: from {figure(least.cost)} to "
        f"{figure(fast.cost)} {unit} (+{100 * dearer:.0f} %) the rate rises by "
        f"{100 * faster:.0f} %."
    )
