"""What each dimension does to the rate, by the calibrated cost model: its importance, which is the
source study's figure 10 (Dash et al. 2023, arXiv:2312.12705), and its marginal effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np

from autotune.cost_model.columns import Array
from autotune.dimension_words import capitalised, dimension_name, value_words
from autotune.explanation.impact import DimensionImpact, impacts
from autotune.explanation.marginal import marginal as marginal_of
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable, MarginalValue
from autotune.schemas.wire import Wire
from server.figures.figure import Cells, DrawnFigure, RateFigure, rows_of, table_of, tooltip
from server.figures.source import FigureSource
from server.figures.vega import HUES, PALETTES, Scheme, Spec, finish, layer, nominal, quantitative

DOTS = 160
"""Maximum dots per dimension; of more strategies, a sample evenly spread over their changes."""

BINS = 64
"""Dots in the same bin of the beeswarm's width are drawn beside each other."""

ROW_PX = 44
VALUE_ROW_PX = 19
LETTER_PX = 6.6  # of a bold label
NOTHING_DIFFERS = "The strategies of this space do not differ"


class DimensionPart(Wire):
    """What a figure shows of one dimension."""

    dimension: str
    """The dimension."""
    name: str
    """Its label."""

    @classmethod
    def of_dimension(cls, dimension: str, **told: Any) -> Self:
        return cls(dimension=dimension, name=capitalised(dimension_name(dimension)), **told)


class ImpactBar(DimensionPart):
    """One dimension; numbers are in per cent of the rate."""

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


class ImpactDot(DimensionPart):
    """One strategy in one dimension."""

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


class ImportanceFigure(DrawnFigure):
    """A figure of the exact Shapley values of the strategies that may fit."""

    rests_on = "space"

    strategies: int
    """Strategies of the space."""
    unit: str
    """Unit of the rate."""

    @classmethod
    def _of_space(cls, source: FigureSource, caption: str, **told: Any) -> Self:
        told["unit"] = OBJECTIVE_UNITS[source.campaign.request.objective]
        told["strategies"] = len(source.belief.rates.at_fixed_nodes.lattice)
        return cls._of_campaign(source, caption, **told)


class ImpactFigure(ImportanceFigure):
    """Mean absolute Shapley values, the largest first."""

    named = "Importance"
    shows = "how much each dimension changes the rate, with an 80 % interval"

    kind: Literal["impact"] = "impact"
    """Kind of figure."""
    bars: list[ImpactBar]
    """One bar per dimension, the largest impact first."""

    @classmethod
    def of(cls, source: FigureSource) -> ImpactFigure:
        bars = [_bar(each) for each in impacts(source.belief.rates.at_fixed_nodes)]
        count = len(source.belief.rates.at_fixed_nodes.lattice)
        return cls._of_space(
            source,
            _caption(bars, count),
            table=table_of(IMPACT_CELLS, bars),
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


class BeeswarmFigure(ImportanceFigure):
    """All Shapley values: one dot per strategy and dimension."""

    named = "Importance by value"
    shows = "how much each value changes the rate of each strategy"

    kind: Literal["beeswarm"] = "beeswarm"
    """Kind of figure."""
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
        return cls._of_space(
            source,
            _levels_caption(found),
            title="Importance by value",
            table=FigureTable(columns=columns, rows=rows),
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
        ramp = {
            "domain": [0, 1],
            "range": [HUES[scheme]["blue"], HUES[scheme]["orange"]],
            "interpolate": "lab",
        }
        dot = {
            "x": quantitative("change", title=title, axis={"tickCount": 8}),
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
    return ImpactBar.of_dimension(
        each.dimension,
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
            ImpactDot.of_dimension(
                each.dimension,
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


class MarginalCurve(DimensionPart):
    """One dimension."""

    points: list[MarginalValue]
    """Its values, in ascending order."""
    sentence: str
    """Its largest significant step, in words."""


class MarginalFigure(RateFigure):
    """One curve per dimension, the largest impact first."""

    named = "Marginal effect"
    shows = "the rate at each value of a dimension, all else being equal"
    rests_on = "space"

    kind: Literal["marginal"] = "marginal"
    """Kind of figure."""
    curves: list[MarginalCurve]
    """The dimensions, the largest impact first."""

    @classmethod
    def of(cls, source: FigureSource) -> MarginalFigure:
        rates = source.belief.rates
        order = [each.dimension for each in impacts(rates)]
        found = {dimension: marginal_of(rates, dimension) for dimension in order}
        curves = [
            MarginalCurve.of_dimension(dimension, points=list(each.points), sentence=each.sentence)
            for dimension, each in found.items()
        ]
        sentences = [curve.sentence for curve in curves[:3]]
        said = "; ".join([*sentences, "all else equal"])
        caption = capitalised(said) if sentences else NOTHING_DIFFERS
        rows = [
            [
                curve.name,
                point.value,
                f"{point.change:+.1f}",
                f"{point.low:+.1f} to {point.high:+.1f}",
                f"{point.strategies:,}",
            ]
            for curve in curves
            for point in curve.points
        ]
        columns = ["Parameter", "Value", "Change, %", "80 % interval, %", "Strategies"]
        return cls._of_campaign(
            source,
            f"{caption}.",
            table=FigureTable(columns=columns, rows=rows),
            curves=curves,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        rows, order = self._rows()
        is_head = "!split(datum.label, '|')[1]"
        label = {
            "labelExpr": f"{is_head} ? split(datum.label, '|')[2] : split(datum.label, '|')[1]",
            "labelFontWeight": {"condition": {"test": is_head, "value": "bold"}, "value": "normal"},
            "minExtent": LETTER_PX * max((len(curve.name) for curve in self.curves), default=0),
            "ticks": False,
            "domain": False,
        }
        y = nominal("row", sort=order, title=None, axis=label, scale={"domain": order})
        x = quantitative("change", title=f"change of {self.unit}, %", axis={"tickCount": 8})
        tooltip = [
            nominal("value", title="value"),
            nominal("said", title="change (80 %)"),
            quantitative("strategies", title="strategies with it"),
            nominal("sentence", title="largest step"),
        ]
        curve = {"x": x, "y": y, "detail": nominal("name"), "order": quantitative("number")}
        ends = {"x": quantitative("low"), "x2": {"field": "high"}, "y": y, "tooltip": tooltip}
        blue = palette.measured
        layers = [
            layer("rule", "zero", {"x": quantitative("x")}, color=palette.faint, strokeDash=[2, 3]),
            layer("line", "points", curve, color=blue, strokeWidth=1.2, strokeOpacity=0.5),
            layer("rule", "points", ends, color=blue, strokeWidth=3, strokeOpacity=0.45),
            layer(
                "point",
                "points",
                {"x": x, "y": y, "tooltip": tooltip},
                filled=True,
                size=64,
                color=blue,
                opacity=1,
                shape="circle",
            ),
        ]
        data = {"points": rows, "zero": [{"x": 0}]}
        return finish(layers, palette, data, height=VALUE_ROW_PX * max(len(order), 1))

    def _rows(self) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the rows of the points, and the order of these and their headings from the top:
        `dimension|value`, or `dimension||heading`."""
        rows: list[dict[str, Any]] = []
        order: list[str] = []
        for curve in self.curves:
            order.append(f"{curve.dimension}||{curve.name}")
            for number, point in enumerate(curve.points):
                row = f"{curve.dimension}|{point.value}"
                order.append(row)
                said = f"{point.change:+.1f} % ({point.low:+.1f} to {point.high:+.1f})"
                own = {"row": row, "name": curve.name, "number": number, "said": said}
                rows.append(point.model_dump() | own | {"sentence": curve.sentence})
        return rows, order
