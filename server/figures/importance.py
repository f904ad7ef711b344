"""How much each dimension changes the rate, by the calibrated cost model: the source study's
figure 10 (Dash et al. 2023, arXiv:2312.12705)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from autotune.explanation.impact import DimensionImpact, impacts
from autotune.schemas.wire import Wire
from autotune.words.dimensions import capitalised, dimension_name, value_words
from server.figures.figure import Cells, RateFigure, rows_of, table_of, tooltip
from server.figures.source import FigureSource
from server.figures.vega import PALETTES, Scheme, Spec, finish, layer, nominal, quantitative


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


IMPACT_CELLS: Cells[ImpactBar] = {
    "Parameter": lambda bar: bar.name,
    "Impact, %": lambda bar: f"{bar.impact:.1f}",
    "80 % interval, %": lambda bar: f"{bar.low:.1f} to {bar.high:.1f}",
    "Share": lambda bar: f"{100 * bar.share:.0f} %",
    "By value, %": lambda bar: "; ".join(
        f"{value}: {change:+.1f}" for value, change in zip(bar.values, bar.by_level, strict=True)
    ),
}


class ImpactFigure(RateFigure):
    """Mean absolute Shapley values of the strategies that may fit, the largest first."""

    named = "Importance"
    shows = "how much each dimension changes the rate, with an 80 % interval"
    rests_on = "space"

    kind: Literal["impact"] = "impact"
    """Kind of figure."""
    strategies: int
    """Strategies of the space."""
    bars: list[ImpactBar]
    """One bar per dimension, the largest impact first."""

    @classmethod
    def of(cls, source: FigureSource) -> ImpactFigure:
        rates = source.belief.rates.at_fixed_nodes
        bars = [_bar(each) for each in impacts(rates)]
        return cls._of_campaign(
            source,
            _caption(bars, len(rates.lattice)),
            table=table_of(IMPACT_CELLS, bars),
            strategies=len(rates.lattice),
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


def per_cent(log_ratio: float) -> float:
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
        return "The layouts of this space do not differ."
    first = bars[0]
    head = (
        f"{first.name} decides most: its choice moves the rate by {first.impact:.0f} % on average "
        f"({first.low:.0f} to {first.high:.0f} %)"
    )
    second = (
        f", the choice of {dimension_name(bars[1].dimension)} by {bars[1].impact:.0f} %"
        if len(bars) > 1
        else ""
    )
    return f"{head}{second}; over the {strategies:,} layouts that may fit."
