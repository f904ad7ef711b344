"""The importance of each dimension: the source study's figure 10 (Dash et al. 2023,
arXiv:2312.12705), with exact Shapley values of the calibrated cost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from autotune.cost_model.columns import Array
from autotune.dimension_words import capitalised, dimension_name, value_words
from autotune.explanation.impact import DimensionImpact, impacts
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable
from autotune.schemas.wire import Wire
from server.figures.figure import Cells, DrawnFigure, rows_of, table_of, tooltip
from server.figures.marginal import NOTHING_DIFFERS
from server.figures.source import FigureSource
from server.figures.vega import PALETTES, Scheme, Spec, finish, layer, nominal, quantitative

DOTS = 160
"""Maximum dots per dimension; of more strategies, a sample evenly spread over their changes."""

BINS = 64
"""Dots in the same bin of the beeswarm's width are drawn beside each other."""

ROW_PX = 44
LEVELS = {"light": ("#0072B2", "#E69F00"), "dark": ("#56B4E9", "#E69F00")}
"""Colours of a dimension's lowest and highest value."""


class ImpactBar(Wire):
    """One dimension; numbers are in per cent of the rate."""

    dimension: str
    """The dimension."""
    name: str
    """Its label."""
    impact: float
    """Mean absolute contribution of its value to the rate of a strategy."""
    low: float
    """Lower bound of the 80 % interval of the impact."""
    high: float
    """Upper bound of the 80 % interval of the impact."""
    share: float
    """Its share of the total impact of all dimensions, 0 to 1."""
    values: list[str]
    """Its values, in ascending order."""
    by_level: list[float]
    """Mean contribution of each value to the rate, per cent."""


class ImpactDot(Wire):
    """One strategy in one dimension."""

    dimension: str
    """The dimension."""
    name: str
    """Its label."""
    value: str
    """The strategy's value."""
    level: float
    """The value's position, from 0 for the dimension's lowest to 1 for its highest."""
    change: float
    """Contribution of the value to the strategy's rate, per cent."""
    offset: float
    """Vertical offset that keeps dots at one position apart."""


IMPACT_CELLS: Cells[ImpactBar] = {
    "Parameter": lambda bar: bar.name,
    "Impact, %": lambda bar: f"{bar.impact:.1f}",
    "80 % interval, %": lambda bar: f"{bar.low:.1f} to {bar.high:.1f}",
    "Share": lambda bar: f"{100 * bar.share:.0f} %",
    "By value, %": lambda bar: "; ".join(
        f"{value}: {change:+.1f}" for value, change in zip(bar.values, bar.by_level, strict=True)
    ),
}


class ImpactFigure(DrawnFigure):
    """Mean absolute Shapley values, the largest first."""

    named = "Importance"
    shows = "how much each dimension changes the rate, with an 80 % interval"
    rests_on = "space"

    kind: Literal["impact"] = "impact"
    """Kind of figure."""
    strategies: int
    """Strategies of the space."""
    unit: str
    """Unit of the rate."""
    bars: list[ImpactBar]
    """One bar per dimension, the largest impact first."""

    @classmethod
    def of(cls, source: FigureSource) -> ImpactFigure:
        bars = [_bar(each) for each in impacts(source.belief.rates.at_fixed_nodes)]
        count = len(source.belief.rates.at_fixed_nodes.lattice)
        return cls._of_campaign(
            source,
            _caption(bars, count),
            table=table_of(IMPACT_CELLS, bars),
            strategies=count,
            unit=OBJECTIVE_UNITS[source.campaign.request.objective],
            bars=bars,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        rows = rows_of(IMPACT_CELLS, self.bars)
        y = nominal("name", sort=[bar.name for bar in self.bars], title=None)
        title = f"mean change of {self.unit}, %"
        x = quantitative("impact", title=title, scale={"zero": True}, axis={"tickCount": 8})
        bars = {"x": x, "y": y, "tooltip": tooltip(IMPACT_CELLS)}
        ends = bars | {"x": quantitative("low", title=title), "x2": {"field": "high"}}
        layers = [
            layer("bar", "bars", bars, color=palette.measured, height=16),
            layer("rule", "bars", ends, color=palette.text, strokeWidth=1.5),
        ]
        return finish(layers, palette, {"bars": rows}, height=34 * max(len(rows), 1))


class BeeswarmFigure(DrawnFigure):
    """All Shapley values: one dot per strategy and dimension."""

    named = "Importance by value"
    shows = "how much each value changes the rate of each strategy"
    rests_on = "space"

    kind: Literal["beeswarm"] = "beeswarm"
    """Kind of figure."""
    strategies: int
    """Strategies of the space."""
    unit: str
    """Unit of the rate."""
    dots: list[ImpactDot]
    """Dots of each dimension; of many strategies, an evenly spread sample."""

    @classmethod
    def of(cls, source: FigureSource) -> BeeswarmFigure:
        found = impacts(source.belief.rates.at_fixed_nodes)
        rows = [
            [
                capitalised(dimension_name(each.dimension)),
                value_words(each.dimension, value),
                _signed(mean),
            ]
            for each in found
            for value, mean in zip(each.values, each.by_level, strict=True)
        ]
        columns = ["Parameter", "Value", "Mean contribution, %"]
        return cls._of_campaign(
            source,
            _levels_caption(found),
            title="Importance by value",
            table=FigureTable(columns=columns, rows=rows),
            strategies=len(source.belief.rates.at_fixed_nodes.lattice),
            unit=OBJECTIVE_UNITS[source.campaign.request.objective],
            dots=_dots(found),
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        order = list(dict.fromkeys(dot.name for dot in self.dots))
        title = f"contribution to {self.unit}, %"
        legend: Spec = {
            "title": "value",
            "values": [0, 1],
            "labelExpr": "datum.value < 0.5 ? 'lowest' : 'highest'",
        }
        ramp = {"domain": [0, 1], "range": list(LEVELS[scheme]), "interpolate": "lab"}
        dot = {
            "x": quantitative("change", title=title),
            "y": nominal("name", sort=order, title=None, axis={"grid": False}),
            "yOffset": quantitative("offset", scale={"domain": [-1, 1]}),
            "color": quantitative("level", scale=ramp, legend=legend),
            "tooltip": [
                nominal("value", title="value"),
                quantitative("change", title="contribution, %", format="+.1f"),
            ],
        }
        layers = [
            layer("rule", "zero", {"x": quantitative("x")}, color=palette.faint, strokeWidth=1),
            layer("circle", "dots", dot, size=26, opacity=0.9),
        ]
        data = {"dots": [dot.model_dump() for dot in self.dots], "zero": [{"x": 0}]}
        return finish(layers, palette, data, height=ROW_PX * max(len(order), 1))


def per_cent(log_ratio: float) -> float:
    """Return a difference of logarithms as a relative change, per cent."""
    return 100.0 * float(np.expm1(log_ratio))


def _bar(each: DimensionImpact) -> ImpactBar:
    return ImpactBar(
        dimension=each.dimension,
        name=capitalised(dimension_name(each.dimension)),
        impact=per_cent(each.impact),
        low=per_cent(each.low),
        high=per_cent(each.high),
        share=each.share,
        values=[value_words(each.dimension, value) for value in each.values],
        by_level=[per_cent(mean) for mean in each.by_level],
    )


def _caption(bars: Sequence[ImpactBar], strategies: int) -> str:
    if not bars:
        return f"{NOTHING_DIFFERS}."
    first = bars[0]
    head = (
        f"{first.name} decides most: its choice moves the rate by {first.impact:.0f} % on average "
        f"({first.low:.0f} to {first.high:.0f} %)"
    )
    second = (
        f", that of {dimension_name(bars[1].dimension)} by {bars[1].impact:.0f} %"
        if len(bars) > 1
        else ""
    )
    return f"{head}{second}; over the {strategies:,} strategies that may fit."


def _levels_caption(found: Sequence[DimensionImpact]) -> str:
    if not found:
        return f"{NOTHING_DIFFERS}."
    first = found[0]
    best, worst = int(np.argmax(first.by_level)), int(np.argmin(first.by_level))
    gain, loss = (_signed(first.by_level[at]) for at in (best, worst))
    good, bad = (value_words(first.dimension, first.values[at]) for at in (best, worst))
    return (
        f"Each dot is a strategy: {good} changes its rate by {gain} % on average, {bad} by "
        f"{loss} %, against the mean of the space."
    )


def _signed(log_ratio: float) -> str:
    return f"{per_cent(log_ratio):+.1f}"


def _dots(found: Sequence[DimensionImpact]) -> list[ImpactDot]:
    if not found:
        return []
    changes = [100.0 * np.expm1(each.contribution) for each in found]
    low, high = min(c.min() for c in changes), max(c.max() for c in changes)
    dots = []
    for each, change in zip(found, changes, strict=True):
        order = np.argsort(change, kind="stable")
        at = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), DOTS)).astype(int))]
        last = max(len(each.values) - 1, 1)
        offsets = _offsets(change[at], low=float(low), high=float(high))
        dots += [
            ImpactDot(
                dimension=each.dimension,
                name=capitalised(dimension_name(each.dimension)),
                value=value_words(each.dimension, each.values[int(each.level[row])]),
                level=float(each.level[row]) / last,
                change=float(change[row]),
                offset=float(offset),
            )
            for row, offset in zip(at, offsets, strict=True)
        ]
    return dots


def _offsets(places: Array, *, low: float, high: float) -> Array:
    """Return for each of the places, from -1 to 1, how far from the middle its dot is set so that
    dots of one bin lie beside each other, from the middle outwards."""
    width = max(high - low, 1e-9) / BINS
    bins = ((places - low) / width).astype(np.int64)
    offsets = np.zeros(len(places))
    counts = np.bincount(bins - bins.min())
    step = min(0.16, 1.8 / max(int(counts.max()), 1))
    seen: dict[int, int] = {}
    # In a shuffled order, so that dots which rise with their place make no pattern across it.
    for row in np.random.default_rng(0).permutation(len(places)).tolist():
        place = int(bins[row])
        number = seen.get(place, 0)
        seen[place] = number + 1
        side = 1 if number % 2 else -1
        offsets[row] = side * ((number + 1) // 2) * step
    return offsets
