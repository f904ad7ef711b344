"""The rate at each value of a dimension, all others being equal."""

from __future__ import annotations

from typing import Any, Literal

from autotune.dimension_words import capitalised, dimension_name, value_words
from autotune.explanation.impact import impacts
from autotune.explanation.marginal import Marginal
from autotune.explanation.marginal import marginal as marginal_of
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable
from autotune.schemas.wire import Wire
from server.figures.figure import DrawnFigure
from server.figures.source import FigureSource
from server.figures.vega import PALETTES, Scheme, Spec, finish, layer, nominal, quantitative

ROW_PX = 19
LETTER_PX = 6.6  # of a bold label
NOTHING_DIFFERS = "The strategies of this space do not differ"


class MarginalValue(Wire):
    """One value of a dimension; changes are relative to the mean rate of the space, all else being
    equal."""

    value: str
    """The value."""
    strategies: int
    """Strategies with the value."""
    change: float
    """Change of the rate, per cent."""
    low: float
    """Lower bound of its 80 % interval."""
    high: float
    """Upper bound of its 80 % interval."""


class MarginalCurve(Wire):
    """One dimension."""

    dimension: str
    """The dimension."""
    name: str
    """Its label."""
    points: list[MarginalValue]
    """Its values, in ascending order."""
    sentence: str
    """Its largest significant step, in words."""


class MarginalFigure(DrawnFigure):
    """One curve per dimension, the largest impact first."""

    named = "Marginal effect"
    shows = "the rate at each value of a dimension, all else being equal"
    rests_on = "space"

    kind: Literal["marginal"] = "marginal"
    """Kind of figure."""
    unit: str
    """Unit of the rate."""
    curves: list[MarginalCurve]
    """The dimensions, the largest impact first."""

    @classmethod
    def of(cls, source: FigureSource) -> MarginalFigure:
        rates = source.belief.rates
        order = [each.dimension for each in impacts(rates)]
        curves = [_curve(marginal_of(rates, dimension)) for dimension in order]
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
            unit=OBJECTIVE_UNITS[source.campaign.request.objective],
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
        x = quantitative("change", title=f"change of {self.unit}, %")
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
        return finish(layers, palette, data, height=ROW_PX * max(len(order), 1))

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


def _curve(found: Marginal) -> MarginalCurve:
    return MarginalCurve(
        dimension=found.dimension,
        name=capitalised(dimension_name(found.dimension)),
        points=[
            MarginalValue(
                value=value_words(found.dimension, point.value),
                strategies=point.strategies,
                change=100.0 * (point.relative - 1.0),
                low=100.0 * (point.low - 1.0),
                high=100.0 * (point.high - 1.0),
            )
            for point in found.points
        ],
        sentence=found.sentence,
    )
