"""The measured time of each trial against its prediction."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.words.quantities import plural, probability, seconds
from server.figures.figure import Cells, DrawnFigure, rows_of, table_of, tooltip
from server.figures.outcome import (
    TrialMark,
    mark_of,
    measured_axis,
    outcome_channels,
    thin,
    trials_chart,
)
from server.figures.source import FigureSource
from server.figures.vega import (
    PALETTES,
    Scheme,
    Spec,
    axis,
    layer,
    quantitative,
)


class CalibrationPoint(TrialMark):
    """One trial. Errors are the measured time over the predicted one, less 1, in per cent; null if
    the trial ran out of memory."""

    predicted_s: float | None
    """Predicted time of an optimizer step, s."""
    measured_s: float | None
    """Measured time of an optimizer step, s."""
    error: float | None
    """Error of the prediction."""
    low: float | None
    """Lower bound of the 80 % prediction interval, as an error."""
    high: float | None
    """Upper bound of the 80 % prediction interval, as an error."""
    within: bool | None
    """Whether the measured time is within that interval."""
    fit_probability: float
    """Predicted probability that the trial fits in memory."""


TIME_CELLS: Cells[CalibrationPoint] = {
    "Trial": lambda point: str(point.number),
    "Predicted": lambda point: seconds(point.predicted_s),
    "Came out": lambda point: seconds(point.measured_s),
    "Error, %": lambda point: "–" if point.error is None else f"{point.error:+.1f}",
    "80 % interval, %": lambda point: (
        "–" if point.low is None else f"{point.low:+.1f} to {point.high:+.1f}"
    ),
    "Likely to fit": lambda point: probability(point.fit_probability),
    "Outcome": lambda point: point.outcome.value,
    "Layout": lambda point: point.strategy,
}


class CalibrationFigure(DrawnFigure):
    """Predicted and measured time of each trial."""

    named = "Predicted and measured"
    shows = "the measured time of each trial against its prediction, with the 80 % interval"

    kind: Literal["calibration"] = "calibration"
    """Kind of figure."""
    timed: int
    """Trials that were timed."""
    covered: int
    """Timed trials within their 80 % interval; 80 % of them should be."""
    median_error: float | None
    """Median of the absolute errors, per cent; null if no trial was timed."""
    points: list[CalibrationPoint]
    """The trials; of thousands, a sample of each outcome."""

    @classmethod
    def of(cls, source: FigureSource) -> CalibrationFigure:
        points = [point for trial in source.layouts if (point := _timed(trial)) is not None]
        timed = [point for point in points if point.error is not None]
        covered = sum(bool(point.within) for point in timed)
        errors = [abs(point.error) for point in timed if point.error is not None]
        middle = median(errors) if errors else None
        drawn = thin(points)
        title = "Predicted and simulated" if source.campaign.simulated else "Predicted and measured"
        return cls._of_campaign(
            source,
            _time_caption(points, covered, middle),
            title=title,
            table=table_of(TIME_CELLS, drawn),
            timed=len(timed),
            covered=covered,
            median_error=middle,
            points=drawn,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        if any(_timed(trial) is not None for trial in source.layouts):
            return ""
        return "no trial of which something was predicted has ended yet"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        rows = rows_of(TIME_CELLS, self.points)
        x = quantitative(
            "number",
            title="trial",
            axis=axis(bool(rows), tickMinStep=1, tickCount=8),
            scale={"zero": False, "nice": False, "padding": 10},
        )
        title = "time against its prediction, %"
        y = measured_axis("error", rows, title=title, form="+.0f")
        cells = tooltip(TIME_CELLS)
        low = {"x": x, "y": quantitative("low"), "y2": {"field": "high"}, "tooltip": cells}
        width = max(1.5, min(7.0, 420.0 / max(len(rows), 1)))
        band: Spec = {"color": palette.faint, "strokeWidth": width, "strokeOpacity": 0.35}
        outcomes = [point.outcome for point in self.points]
        return trials_chart(
            rows,
            x,
            y,
            palette,
            outcome=outcome_channels(palette, simulated=self.simulated, drawn=outcomes),
            tooltips=(cells, cells),
            behind=[
                layer("rule", "zero", {"y": quantitative("y")}, color=palette.faint, strokeWidth=1),
                layer("rule", "measured", low, **band),
            ],
            data={"zero": [{"y": 0}]},
        )


def _timed(trial: Trial) -> CalibrationPoint | None:
    expected, predicted_s = trial.expected, trial.predicted_iteration_time_s
    measured = trial.metrics if trial.state is TrialState.OK else None
    if expected is None or predicted_s is None:
        return None
    if measured is None and trial.state is not TrialState.OOM:
        return None
    time_s = None if measured is None else measured.iteration_time_s
    low_s, high_s = expected.iteration_time_low_s, expected.iteration_time_high_s

    def error(seconds: float) -> float | None:
        return None if time_s is None else 100.0 * (seconds / predicted_s - 1.0)

    return CalibrationPoint(
        **mark_of(trial),
        predicted_s=predicted_s,
        measured_s=time_s,
        error=None if time_s is None else error(time_s),
        low=error(low_s),
        high=error(high_s),
        within=None if time_s is None else low_s <= time_s <= high_s,
        fit_probability=expected.fit_probability,
    )


def _time_caption(points: Sequence[CalibrationPoint], covered: int, middle: float | None) -> str:
    timed = sum(point.error is not None for point in points)
    full = len(points) - timed
    memory = ""
    if full:
        unforeseen = sum(p.error is None and p.fit_probability > 0.5 for p in points)
        verb = "were" if unforeseen != 1 else "was"
        memory = f"; of {full} out of memory {unforeseen} {verb} predicted to fit"
    if middle is None:
        return f"No trial was timed{memory}."
    return (
        f"{covered} of {plural(timed, 'timed trial')} ({100 * covered / timed:.0f} %) came within "
        f"the 80 % interval predicted before; the median error is {middle:.1f} %{memory}."
    )
