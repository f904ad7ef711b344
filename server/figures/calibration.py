"""What was predicted of each trial before it ran, against what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from autotune.schemas import FigureTable, Trial, TrialPurpose, TrialState, Wire
from server.figures.figure import DrawnFigure
from server.figures.marks import (
    LANE_ROWS,
    above_lane,
    lane_layers,
    lane_middle,
    mark_area_px,
    outcome_channels,
)
from server.figures.outcome import Outcome, outcome_of
from server.figures.source import FigureSource
from server.figures.style import PALETTES, Scheme, axis, finish
from server.figures.trajectory import thin
from server.figures.vega import Spec, layer, nominal, ordinal, quantitative
from server.wording import plural, probability, seconds, strategy_line


class CalibrationPoint(Wire):
    """One trial; errors are the measured time over the predicted one, less 1, in per cent, and null
    where it ran out of memory."""

    number: int
    """The trial."""
    purpose: TrialPurpose
    """Why it was run."""
    outcome: Outcome
    """How it ended."""
    strategy: str
    """The strategy in a line."""
    predicted_s: float | None
    """Predicted time of an optimizer step, s."""
    measured_s: float | None
    """Measured time of an optimizer step, s."""
    error: float | None
    """Its error."""
    low: float | None
    """Lower end of the 80 % interval about the prediction, as an error."""
    high: float | None
    """Upper end of the 80 % interval about the prediction, as an error."""
    within: bool | None
    """Whether it came within that interval."""
    fit_probability: float
    """Probability with which memory was foreseen to suffice."""


class CalibrationFigure(DrawnFigure):
    """What was predicted of each trial against what was measured."""

    kind: Literal["calibration"] = "calibration"
    """What it shows."""
    timed: int
    """Trials that were timed."""
    covered: int
    """Those of them that came within their 80 % interval; it should be 80 %."""
    median_error: float | None
    """Median of the absolute errors, per cent; null where none was timed."""
    points: list[CalibrationPoint]
    """The trials; of thousands, a share of each outcome."""

    @classmethod
    def of(cls, source: FigureSource) -> CalibrationFigure:
        points = [point for trial in source.trials if (point := _point(trial)) is not None]
        timed = [point for point in points if point.error is not None]
        covered = sum(bool(point.within) for point in timed)
        errors = [abs(point.error) for point in timed if point.error is not None]
        middle = median(errors) if errors else None
        drawn = thin(points)
        rows = [
            [
                str(point.number),
                seconds(point.predicted_s),
                seconds(point.measured_s),
                "–" if point.error is None else f"{point.error:+.1f}",
                "–" if point.low is None else f"{point.low:+.1f} to {point.high:+.1f}",
                probability(point.fit_probability),
                point.outcome.value,
                point.strategy,
            ]
            for point in drawn
        ]
        columns = [
            "Trial",
            "Predicted",
            "Came out",
            "Error, %",
            "80 % interval, %",
            "Likely to fit",
            "Outcome",
            "Strategy",
        ]
        title = "Predicted and simulated" if source.campaign.simulated else "Predicted and measured"
        return cls(
            **source.head(title=title, caption=_caption(points, covered, middle)),
            table=FigureTable(columns=columns, rows=rows),
            timed=len(timed),
            covered=covered,
            median_error=middle,
            points=drawn,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        rows = [
            point.model_dump(mode="json")
            | {
                "predicted": seconds(point.predicted_s),
                "came_out": seconds(point.measured_s),
                "fits": probability(point.fit_probability),
            }
            for point in self.points
        ]
        timed = [row for row in rows if row["error"] is not None]
        failed = [row for row in rows if row["error"] is None]
        x = quantitative(
            "number",
            title="trial",
            axis=axis(bool(rows), tickMinStep=1),
            scale={"zero": False, "nice": False, "padding": 10},
        )
        y = quantitative(
            "error",
            title="time against its prediction, %",
            axis=axis(bool(timed), format="+.0f", tickCount=6),
            scale={"range": above_lane(), "zero": True},
        )
        outcomes = [point.outcome for point in self.points]
        outcome = outcome_channels(palette, simulated=self.simulated, drawn=outcomes)
        tooltip = [
            ordinal("number", title="trial"),
            nominal("strategy", title="layout"),
            nominal("predicted", title="predicted"),
            nominal("came_out", title="came out"),
            quantitative("error", title="error, %", format="+.1f"),
            nominal("fits", title="likely to fit"),
        ]
        low = {"x": x, "y": quantitative("low"), "y2": {"field": "high"}, "tooltip": tooltip}
        width = max(1.5, min(7.0, 420.0 / max(len(rows), 1)))
        band: Spec = {"color": palette.faint, "strokeWidth": width, "strokeOpacity": 0.35}
        dot = {"x": x, "y": y, **outcome, "tooltip": tooltip}
        marks: Spec = {"filled": True, "size": mark_area_px(len(rows)), "strokeWidth": 0}
        layers = [
            *lane_layers(palette),
            layer("rule", "zero", {"y": quantitative("y")}, color=palette.faint, strokeWidth=1),
            layer("rule", "timed", low, **band),
            layer("point", "timed", dot, opacity=0.95, **marks),
            layer("point", "failed", dot | {"y": lane_middle()}, opacity=1, **marks),
        ]
        data = {**LANE_ROWS, "timed": timed, "failed": failed, "zero": [{"y": 0}]}
        return finish(layers, palette, data, height=320)


def missing(source: FigureSource) -> str:
    """Return why nothing can be told of the predictions."""
    if any(_point(trial) is not None for trial in source.trials):
        return ""
    return "no trial of which something was predicted has ended yet"


def _point(trial: Trial) -> CalibrationPoint | None:
    expected, predicted_s = trial.expected, trial.predicted_iteration_time_s
    if expected is None or predicted_s is None:
        return None
    common = {
        "number": trial.number,
        "purpose": trial.purpose,
        "outcome": outcome_of(trial),
        "strategy": strategy_line(trial.strategy),
        "predicted_s": predicted_s,
        "fit_probability": expected.fit_probability,
    }
    if trial.state is TrialState.OOM:
        told = dict.fromkeys(("measured_s", "error", "low", "high", "within"))
        return CalibrationPoint.model_validate(common | told)
    if trial.metrics is None or trial.state is not TrialState.OK:
        return None
    measured_s = trial.metrics.iteration_time_s
    low_s, high_s = expected.iteration_time_low_s, expected.iteration_time_high_s
    return CalibrationPoint.model_validate(
        common
        | {
            "measured_s": measured_s,
            "error": 100.0 * (measured_s / predicted_s - 1.0),
            "low": 100.0 * (low_s / predicted_s - 1.0),
            "high": 100.0 * (high_s / predicted_s - 1.0),
            "within": low_s <= measured_s <= high_s,
        }
    )


def _caption(points: Sequence[CalibrationPoint], covered: int, middle: float | None) -> str:
    timed = sum(point.error is not None for point in points)
    full = len(points) - timed
    told = ""
    if full:
        unforeseen = sum(p.error is None and p.fit_probability > 0.5 for p in points)
        verb = "were" if unforeseen != 1 else "was"
        told = f"; of {full} out of memory {unforeseen} {verb} predicted to fit"
    if middle is None:
        return f"No trial was timed{told}."
    return (
        f"{covered} of {plural(timed, 'timed trial')} ({100 * covered / timed:.0f} %) came within "
        f"the 80 % interval predicted before; the median error is {middle:.1f} %{told}."
    )
