"""How layouts scale over nodes: measured points filled, predicted ones hollow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from autotune.prediction.scaling import scaling_series, usual_widths
from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.figures import FigureTable
from autotune.schemas.scaling import ScaledStrategy, ScalingSeries
from autotune.schemas.trials import FAILURES, Trial
from autotune.words.quantities import count, figure, mark, seconds
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from server.figures.figure import NOT_MEASURED, Cells, DrawnFigure, Figure, choice, rows_of, tooltip
from server.figures.outcome import (
    LANE_ROWS,
    above_lane,
    lane_layers,
    lane_middle,
    outcome_channels,
    outcome_of_state,
)
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
    reference_line,
)

TITLES: Mapping[ScalingKind, str] = {
    "strong": "Strong scaling",
    "weak": "Weak scaling",
}
PREDICTED = "predicted"
PER_CENT = "format(100 * {}, '.0f') + ' %'"
"""The Vega expression of a share in per cent."""
STEP = 0.05
"""The efficiency axis is rounded to multiples of this."""
HIGHEST_BOTTOM = 0.85
"""Maximum lower end of the axis, so that a nearly ideal efficiency looks nearly ideal."""


class ScalingFigure(DrawnFigure):
    """The efficiency of layouts on more nodes."""

    named = "Scaling"
    shows = "the efficiency on more nodes, measured and predicted, against the ideal"
    rests_on = "calibration"
    filters = ("scaling",)

    kind: Literal["scaling"] = "scaling"
    """Kind of figure."""
    scaling: ScalingKind
    """The kind of scaling shown."""
    offered: list[ScalingKind]
    """The kinds of scaling available."""
    series: list[ScalingSeries]
    """Scaling of each layout."""

    @classmethod
    def of(cls, source: FigureSource, *, scaling: ScalingKind | None = None) -> ScalingFigure:
        """Raise InvalidInput if the kind of scaling is not available."""
        found = series_of(source)
        offered = list(dict.fromkeys(series.kind for series in found))
        shown = scaling or offered[0]
        if shown not in offered:
            reason = f"its layouts are not scaled {shown}ly"
            raise InvalidInput("scaling", shown, reason, valid=", ".join(offered))
        series = [each for each in found if each.kind == shown]
        return cls._of_campaign(
            source,
            _caption(series),
            title=TITLES[shown],
            table=_table(series, simulated=source.campaign.simulated),
            choices=choice("scaling", offered, shown),
            scaling=shown,
            offered=offered,
            series=series,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        return "" if source.recommendation else NOT_MEASURED

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return scaling_chart(self.series, simulated=self.simulated, scheme=scheme)


def series_of(source: FigureSource) -> list[ScalingSeries]:
    """Return how the recommended layout scales, over halves and doubles of its nodes and all on
    which it ran: measured if a trial ran it, otherwise predicted by the campaign's calibration."""
    assert source.recommendation is not None
    strategy, belief = source.recommendation.best.strategy, source.belief
    measured, failed = measured_steps(source.layouts), failed_steps(source.layouts)
    ran = {each.num_nodes for each in (*measured, *failed) if _layout(each) == _layout(strategy)}
    return scaling_series(
        belief.calibration,
        source.campaign.model,
        strategy,
        nodes=sorted({*usual_widths(strategy, source.campaign.machine), *ran}),
        measured=measured,
        failed=failed,
        simulated=source.campaign.simulated,
        program=belief.program,
    )


def _layout(strategy: Strategy) -> Strategy:
    return replace(strategy, num_nodes=1, gradient_accumulation_steps=1)


def measured_steps(trials: Sequence[Trial]) -> dict[Strategy, float]:
    """Return the seconds of each step that trials have timed, by what ran; of several the last."""
    return {
        trial.strategy.with_accumulation(each.gradient_accumulation_steps): (each.iteration_time_s)
        for trial in trials
        if trial.state is TrialState.OK and trial.num_layers is None
        for each in trial.accumulations
        if each.measured
    }


def failed_steps(trials: Sequence[Trial]) -> dict[Strategy, TrialState]:
    """Return how the last trial ended of each strategy of which none has succeeded."""
    ran = {trial.strategy for trial in trials if trial.state is TrialState.OK}
    return {
        trial.strategy: trial.state
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.state in FAILURES and trial.num_layers is None and trial.strategy not in ran
    }


def _caption(series: Sequence[ScalingSeries]) -> str:
    if len(series) == 1:
        return f"{series[0].sentence}."
    return " ".join(f"{layout_line(each.strategy)}: {each.sentence}." for each in series)


def layout_line(strategy: Strategy) -> str:
    parts = strategy.short().split(" · ")
    changing = ("GAS", str(strategy.num_nodes))
    return " · ".join(part for part in parts if part.split()[0] not in changing)


def _cells(simulated: bool) -> Cells[ScaledStrategy]:
    return {
        "Nodes": lambda point: count(point.num_nodes),
        "GPUs": lambda point: count(point.gpus),
        "Batch": lambda point: count(point.global_batch_size),
        "GAS": lambda point: str(point.strategy.gradient_accumulation_steps),
        "Step": lambda point: seconds(point.iteration_time_s),
        "tokens/s": lambda point: figure(point.tokens_per_s),
        "Efficiency": lambda point: f"{100 * point.efficiency:.1f} %",
        "80 %": lambda point: (
            f"{100 * point.efficiency_low:.1f} to {100 * point.efficiency_high:.1f} %"
        ),
        "Is": lambda point: mark(simulated) if point.measured else PREDICTED,
    }


def _table(series: Sequence[ScalingSeries], *, simulated: bool) -> FigureTable:
    cells, several = _cells(simulated), len(series) > 1
    rows = []
    for each in series:
        own = [(p.num_nodes, [text(p) for text in cells.values()]) for p in each.points]
        for failure in each.failed:
            shown = {
                "Nodes": count(failure.num_nodes),
                "GAS": str(failure.strategy.gradient_accumulation_steps),
                "Is": outcome_of_state(failure.state).value,
            }
            own.append((failure.num_nodes, [shown.get(name, "–") for name in cells]))
        layout = [layout_line(each.strategy)] * several
        rows += [layout + row for _, row in sorted(own)]
    return FigureTable(columns=["Layout"] * several + list(cells), rows=rows)


class PredictedScaling(Figure):
    """Predicted scaling of one layout, of one kind."""

    series: list[ScalingSeries]

    @classmethod
    def of(cls, series: ScalingSeries) -> PredictedScaling:
        return cls(
            title=TITLES[series.kind],
            caption=_caption([series]),
            table=_table([series], simulated=False),
            series=[series],
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return scaling_chart(self.series, simulated=False, scheme=scheme)


def scaling_chart(
    series: Sequence[ScalingSeries], *, simulated: bool, scheme: Scheme = "light"
) -> Spec:
    """Return the efficiency of layouts over nodes, below the line of the ideal, with failures in a
    strip at the bottom.

    Args:
        series: one per layout, all of one kind.
    """
    palette, cells = PALETTES[scheme], _cells(simulated)
    kinds = [mark(simulated), PREDICTED]
    rows = [
        {"layout": layout_line(each.strategy)} | row
        for each in series
        for row in rows_of(cells, each.points)
    ]
    failed: list[dict[str, Any]] = [
        {
            "layout": layout_line(each.strategy),
            "num_nodes": failure.num_nodes,
            "outcome": outcome_of_state(failure.state),
        }
        for each in series
        for failure in each.failed
    ]
    layouts = [layout_line(each.strategy) for each in series]
    colours = [palette.measured, palette.confirmed, palette.crashed, palette.timeout]
    ran = palette.measured if len(series) == 1 else palette.faint
    x = quantitative(
        "num_nodes",
        title="nodes",
        axis={
            "values": sorted({row["num_nodes"] for row in [*rows, *failed]}),
            "format": ",d",
            "labelOverlap": "parity",
        },
        scale={"type": "log", "base": 2, "nice": False, "padding": 40},
    )
    y = quantitative(
        "efficiency",
        title="rate per GPU against the fewest nodes",
        axis={"labelExpr": PER_CENT.format("datum.value"), "tickCount": 6},
        scale={
            "domain": _extent([point for each in series for point in each.points]),
            "nice": False,
            **({"range": above_lane()} if failed else {}),
        },
    )
    by_layout = nominal(
        "layout",
        title=None,
        scale=by_value(layouts, colours[: len(layouts)]),
        legend={"columns": 1, "labelLimit": 520} if len(layouts) > 1 else None,
    )
    legend: Spec = {
        "values": [kind for kind in kinds if any(row["Is"] == kind for row in rows)],
        "symbolStrokeColor": palette.faint,
        "symbolStrokeWidth": 1.5,
    }
    fill = nominal(
        "Is",
        title=None,
        scale=by_value(kinds, [ran, palette.card]),
        legend=legend if rows else None,
    )
    layout = nominal("layout", title="Layout")
    bar = {
        "x": x,
        "y": quantitative("efficiency_low"),
        "y2": {"field": "efficiency_high"},
        "stroke": by_layout,
    }
    place = {"x": x, "y": y, "stroke": by_layout}
    point = place | {"fill": fill, "tooltip": [layout, *tooltip(cells)]}
    label = {"x": x, "y": y, "text": nominal("per_cent")}
    per_cent = [{"calculate": PER_CENT.format("datum.efficiency"), "as": "per_cent"}]
    beside: Spec = {"align": "left", "dx": 6, "dy": -9, "color": palette.text, "fontSize": 11}
    layers = [
        *(lane_layers(palette) if failed else []),
        *reference_line("ideal", y, palette),
        layer("rule", "points", bar, strokeWidth=1.5, strokeOpacity=0.7),
        layer("line", "points", place, strokeWidth=1.3, strokeOpacity=0.7),
        layer("point", "points", point, size=75, strokeWidth=1.8, opacity=1),
        layer("text", "labelled", label, transform=per_cent, **beside),
    ]
    if failed:
        drawn = {row["outcome"] for row in failed}
        outcome = outcome_channels(palette, simulated=simulated, drawn=drawn)
        failure_cells = [
            layout,
            quantitative("num_nodes", title="Nodes", format=",d"),
            nominal("outcome", title="Is"),
        ]
        cross = {"x": x, "y": lane_middle(), **outcome, "tooltip": failure_cells}
        look: Spec = {"filled": True, "size": 90, "opacity": 1, "strokeWidth": 0}
        layers.append(layer("point", "failed", cross, **look))
    data: dict[str, list[dict[str, Any]]] = {
        **LANE_ROWS,
        "ideal": [{"efficiency": 1.0, "label": "ideal"}],
        "points": rows,
        "labelled": rows if len(series) == 1 else [],
        "failed": failed,
    }
    return finish(layers, palette, data, height=300)


def _extent(points: Sequence[ScaledStrategy]) -> list[float]:
    low = min((point.efficiency_low for point in points), default=1.0)
    high = max((point.efficiency_high for point in points), default=1.0)
    bottom = max(0.0, STEP * int(min(low, HIGHEST_BOTTOM) / STEP))
    return [bottom, max(1.0, high) + STEP / 2]
