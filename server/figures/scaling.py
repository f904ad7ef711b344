"""How layouts scale over nodes: what was measured filled, what is predicted hollow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from autotune.prediction import scaling_series
from autotune.prediction.scaling import usual_widths
from autotune.resolution import strategy_of
from autotune.schemas import (
    FAILURES,
    FigureChoice,
    FigureTable,
    ScaledStrategy,
    ScalingKind,
    ScalingSeries,
    StrategyShape,
    Trial,
    TrialState,
)
from autotune.wording import figure
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from server.figures.figure import DrawnFigure, Figure
from server.figures.marks import LANE_ROWS, above_lane, lane_layers, lane_middle, outcome_channels
from server.figures.outcome import outcome_of_state
from server.figures.source import FigureSource
from server.figures.style import (
    FIGURE,
    PALETTES,
    Palette,
    Scheme,
    by_value,
    finish,
    reference_line,
)
from server.figures.vega import Spec, expr, layer, nominal, quantitative
from server.wording import count, mark, seconds, strategy_line

TITLES: Mapping[ScalingKind, str] = {
    "strong": "Strong scaling",
    "weak": "Weak scaling",
}
PREDICTED = "predicted"
STEP = 0.05
"""Of the efficiency, to a multiple of which its axis is rounded."""
ROOM = 0.03
"""Of the efficiency, for the labels below the intervals."""
HIGHEST_BOTTOM = 0.85
"""Of the axis: what is nearly ideal is not to look far from it."""
LABEL_DOWN_PX = 13
FOOT_PX = 18
"""Under the lowest place, for the label of a point there."""


class ScalingFigure(DrawnFigure):
    """The efficiency of layouts on more nodes."""

    kind: Literal["scaling"] = "scaling"
    """What it shows."""
    scaling: ScalingKind
    """Which of the two is shown."""
    offered: list[ScalingKind]
    """In which ways its layouts are scaled."""
    series: list[ScalingSeries]
    """Scaling in that way, of each layout."""

    @classmethod
    def of(cls, source: FigureSource, *, scaling: ScalingKind | None = None) -> ScalingFigure:
        """Raises InvalidInput where its layouts were not to scale, or cannot, in that way."""
        found = series_of(source)
        offered = list(dict.fromkeys(series.kind for series in found))
        shown = scaling or offered[0]
        if shown not in offered:
            reason = f"its layouts are not scaled {shown}ly"
            raise InvalidInput("scaling", shown, reason, valid=", ".join(offered))
        series = [each for each in found if each.kind == shown]
        choice = FigureChoice(
            name="scaling", label="scaling", values=[*offered], value=shown, required=True
        )
        return cls(
            **source.head(title=TITLES[shown], caption=_caption(series)),
            table=_table(series, simulated=source.campaign.simulated),
            choices=[choice] if len(offered) > 1 else [],
            scaling=shown,
            offered=offered,
            series=series,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return scaling_chart(self.series, simulated=self.simulated, scheme=scheme)


def missing(source: FigureSource) -> str:
    """Return why nothing can be told of scaling."""
    if source.campaign.request.study is not None or source.recommendation:
        return ""
    return "no trial has given a measurement yet"


def series_of(source: FigureSource) -> list[ScalingSeries]:
    """Return how the layouts of a study scale; of a search, how what it recommends does."""
    study = source.campaign.request.study
    if study is not None:
        strategies = [strategy_of(shape) for shape in study.strategies]
        return scaled(source, strategies, nodes=study.nodes, kinds=study.kinds)
    recommendation = source.recommendation
    best = [] if recommendation is None else [strategy_of(recommendation.best.strategy)]
    return scaled(source, best)


def scaled(
    source: FigureSource,
    strategies: Sequence[Strategy],
    *,
    nodes: Sequence[int] = (),
    kinds: Sequence[ScalingKind] = get_args(ScalingKind),
) -> list[ScalingSeries]:
    """Return how layouts scale: measured where a trial of the campaign ran them, and predicted
    elsewhere from all that its trials have shown.

    Args:
        nodes: on which they are looked at; where none are given, halves and doubles of each one's
            own, and all on which it ran.

    Raises:
        InvalidInput: field `nodes`: a layout can run on none of them.
    """
    belief = source.belief
    measured, failed = measured_steps(source.trials), failed_steps(source.trials)
    ran = {_layout(step): set[int]() for step in (*measured, *failed)}
    for step in (*measured, *failed):
        ran[_layout(step)].add(step.num_nodes)
    return [
        series
        for strategy in strategies
        for series in scaling_series(
            belief.calibration,
            belief.transformer,
            strategy,
            nodes=nodes
            or sorted({*usual_widths(strategy, belief.machine), *ran.get(_layout(strategy), ())}),
            kinds=kinds,
            measured=measured,
            failed=failed,
            simulated=source.campaign.simulated,
            program=belief.program,
        )
    ]


def _layout(strategy: Strategy) -> Strategy:
    """Return what a strategy is on whatever nodes, with whatever batch."""
    return replace(strategy, num_nodes=1, gradient_accumulation_steps=1)


def measured_steps(trials: Sequence[Trial]) -> dict[Strategy, float]:
    """Return the seconds of each step that trials have timed, by what ran; of several the last."""
    return {
        strategy_of(trial.strategy).with_accumulation(each.gradient_accumulation_steps): (
            each.iteration_time_s
        )
        for trial in trials
        if trial.state is TrialState.OK and trial.num_layers is None
        for each in trial.accumulations
        if each.measured
    }


def failed_steps(trials: Sequence[Trial]) -> dict[Strategy, TrialState]:
    """Return how the last trial ended of each strategy of which none has succeeded."""
    ran = {trial.strategy for trial in trials if trial.state is TrialState.OK}
    return {
        strategy_of(trial.strategy): trial.state
        for trial in sorted(trials, key=lambda trial: trial.number)
        if trial.state in FAILURES and trial.num_layers is None and trial.strategy not in ran
    }


def _caption(series: Sequence[ScalingSeries]) -> str:
    if len(series) == 1:
        return f"{series[0].sentence}."
    return " ".join(f"{layout_line(each.strategy)}: {each.sentence}." for each in series)


def layout_line(strategy: StrategyShape) -> str:
    """Return a layout without its nodes and accumulation, which scaling changes."""
    parts = strategy_line(strategy).split(" · ")
    changing = ("GAS", str(strategy.num_nodes))
    return " · ".join(part for part in parts if part.split()[0] not in changing)


def _table(series: Sequence[ScalingSeries], *, simulated: bool) -> FigureTable:
    """Return every point, and what could not be timed."""
    columns = ["Nodes", "GPUs", "Batch", "GAS", "Step", "tokens/s", "Efficiency", "80 %", "Is"]
    several = len(series) > 1
    rows = [
        [layout_line(each.strategy)] * several + row
        for each in series
        for _, row in sorted(_rows(each, mark(simulated)))
    ]
    return FigureTable(columns=["Layout"] * several + columns, rows=rows)


def _rows(series: ScalingSeries, ran: str) -> Iterator[tuple[int, list[str]]]:
    for point in series.points:
        yield (
            point.num_nodes,
            [
                count(point.num_nodes),
                count(point.gpus),
                count(point.global_batch_size),
                str(point.strategy.gradient_accumulation_steps),
                seconds(point.iteration_time_s),
                figure(point.tokens_per_s),
                _percent(point.efficiency),
                _interval(point),
                ran if point.measured else PREDICTED,
            ],
        )
    for each in series.failed:
        gas = str(each.strategy.gradient_accumulation_steps)
        said = outcome_of_state(each.state).value
        row = [count(each.num_nodes), "–", "–", gas, "–", "–", "–", "–", said]
        yield each.num_nodes, row


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _interval(point: ScaledStrategy) -> str:
    return f"{100 * point.efficiency_low:.1f} to {100 * point.efficiency_high:.1f} %"


def scaling_figure(
    series: Sequence[ScalingSeries], *, simulated: bool, scheme: Scheme = "light"
) -> Figure:
    """Return how layouts scale, a series of one kind each."""
    return Figure(
        name="scaling",
        title=TITLES[series[0].kind],
        caption=_caption(series),
        table=_table(series, simulated=simulated),
        specification=scaling_chart(series, simulated=simulated, scheme=scheme),
        scheme=scheme,
    )


def scaling_chart(
    series: Sequence[ScalingSeries], *, simulated: bool, scheme: Scheme = "light"
) -> Spec:
    """Draw the efficiency of layouts over nodes, under the line of the ideal; those that failed
    stand in a strip below.

    Args:
        series: of one kind, a layout each.
    """
    palette = PALETTES[scheme]
    points = [point for each in series for point in each.points]
    failed = [failure for each in series for failure in each.failed]
    kinds = [mark(simulated), PREDICTED]
    rows = _points(series, kinds)
    layouts = [layout_line(each.strategy) for each in series]
    colours = [palette.measured, palette.confirmed, palette.crashed, palette.timeout]
    ran = palette.measured if len(series) == 1 else palette.faint
    widths = sorted(
        {*(point.num_nodes for point in points), *(failure.num_nodes for failure in failed)}
    )
    x = quantitative(
        "nodes",
        title="nodes",
        axis={"values": widths, "format": ",d", "labelOverlap": "parity"},
        scale={"type": "log", "base": 2, "nice": False, "padding": 40},
    )
    extent = {"domain": _extent(points), "nice": False}
    y = quantitative(
        "efficiency",
        title="rate per GPU against the fewest nodes",
        axis={"format": ".0%", "tickCount": 6},
        scale=extent | {"range": above_lane() if failed else [expr(f"height - {FOOT_PX}"), 0]},
    )
    by_layout = nominal(
        "layout",
        title=None,
        scale=by_value(layouts, colours[: len(layouts)]),
        legend={"columns": 1, "labelLimit": 520} if len(layouts) > 1 else None,
    )
    legend: Spec = {
        "values": [kind for kind in kinds if any(row["kind"] == kind for row in rows)],
        "symbolStrokeColor": palette.faint,
        "symbolStrokeWidth": 1.5,
    }
    fill = nominal(
        "kind",
        title=None,
        scale=by_value(kinds, [ran, palette.card]),
        legend=legend if rows else None,
    )
    tooltip = [
        nominal("layout", title="layout"),
        quantitative("nodes", title="nodes", format=",d"),
        quantitative("batch", title="global batch", format=",d"),
        nominal("step", title="step"),
        quantitative("tokens_per_s", title="tokens/s", format=FIGURE),
        nominal("said", title="efficiency"),
        nominal("between", title="80 %"),
        nominal("kind", title="is"),
    ]
    low = quantitative("low")
    bar = {"x": x, "y": low, "y2": {"field": "high"}, "stroke": by_layout}
    place = {"x": x, "y": y, "stroke": by_layout}
    point = place | {"fill": fill, "tooltip": tooltip}
    label = {"x": x, "y": low, "text": nominal("said")}
    layers = [
        *(lane_layers(palette) if failed else []),
        *reference_line("ideal", y, palette),
        layer("rule", "points", bar, strokeWidth=1.5, strokeOpacity=0.7),
        layer("line", "points", place, strokeWidth=1.3, strokeOpacity=0.7),
        layer("point", "points", point, size=75, strokeWidth=1.8, opacity=1),
        layer("text", "labelled", label, dy=LABEL_DOWN_PX, color=palette.text, fontSize=11),
    ]
    if failed:
        layers.append(_failures(palette, series, x, simulated=simulated))
    data: dict[str, list[dict[str, Any]]] = {
        **LANE_ROWS,
        "ideal": [{"efficiency": 1.0, "label": "ideal"}],
        "points": rows,
        "labelled": rows if len(series) == 1 else [],
        "failed": _failed_rows(series),
    }
    return finish(layers, palette, data, height=300)


def _failures(
    palette: Palette, series: Sequence[ScalingSeries], x: Spec, *, simulated: bool
) -> Spec:
    drawn = {outcome_of_state(failure.state) for each in series for failure in each.failed}
    tooltip = [
        nominal("layout", title="layout"),
        quantitative("nodes", title="nodes", format=",d"),
        nominal("outcome", title="result"),
    ]
    outcome = outcome_channels(palette, simulated=simulated, drawn=drawn)
    mark = {"x": x, "y": lane_middle(), **outcome, "tooltip": tooltip}
    return layer("point", "failed", mark, filled=True, size=90, opacity=1, strokeWidth=0)


def _extent(points: Sequence[ScaledStrategy]) -> list[float]:
    """Return the ends of the axis of efficiency: whole steps round all intervals and the ideal."""
    low = min((point.efficiency_low for point in points), default=1.0)
    high = max((point.efficiency_high for point in points), default=1.0)
    bottom = max(0.0, STEP * int(min(low - ROOM, HIGHEST_BOTTOM) / STEP))
    return [bottom, max(1.0, high) + STEP / 2]


def _points(series: Sequence[ScalingSeries], kinds: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "layout": layout_line(each.strategy),
            "nodes": point.num_nodes,
            "batch": point.global_batch_size,
            "step": seconds(point.iteration_time_s),
            "tokens_per_s": point.tokens_per_s,
            "efficiency": point.efficiency,
            "low": point.efficiency_low,
            "high": point.efficiency_high,
            "said": _percent(point.efficiency),
            "between": _interval(point),
            "kind": kinds[not point.measured],
        }
        for each in series
        for point in each.points
    ]


def _failed_rows(series: Sequence[ScalingSeries]) -> list[dict[str, Any]]:
    return [
        {
            "layout": layout_line(each.strategy),
            "nodes": failure.num_nodes,
            "outcome": outcome_of_state(failure.state).value,
        }
        for each in series
        for failure in each.failed
    ]
