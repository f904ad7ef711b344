"""The measured time of each trial against its prediction, and its rate against the free memory."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Literal

from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.wording import figure
from server.figures.figure import Cells, DrawnFigure, RateFigure, rows_of, table_of, tooltip
from server.figures.outcome import (
    TrialMark,
    mark_of,
    measured_axis,
    objective_of,
    outcome_channels,
    thin,
    trials_chart,
)
from server.figures.source import FigureSource
from server.figures.vega import (
    PALETTES,
    Scheme,
    Spec,
    at,
    axis,
    layer,
    limit_line,
    nominal,
    quantitative,
)
from server.wording import plural, probability, seconds


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
    "Strategy": lambda point: point.strategy,
}


class CalibrationFigure(DrawnFigure):
    """Predicted and measured time of each trial."""

    named = "Predicted and measured"
    shows = "the measured time of each trial against its prediction, with the 80 % interval"
    of_studies = True

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
        points = [point for trial in source.trials if (point := _timed(trial)) is not None]
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
        if any(_timed(trial) is not None for trial in source.trials):
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
        told = tooltip(TIME_CELLS)
        low = {"x": x, "y": quantitative("low"), "y2": {"field": "high"}, "tooltip": told}
        width = max(1.5, min(7.0, 420.0 / max(len(rows), 1)))
        band: Spec = {"color": palette.faint, "strokeWidth": width, "strokeOpacity": 0.35}
        outcomes = [point.outcome for point in self.points]
        return trials_chart(
            rows,
            x,
            y,
            palette,
            outcome=outcome_channels(palette, simulated=self.simulated, drawn=outcomes),
            tooltips=(told, told),
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


FARTHEST = 0.3
"""Share of a GPU's memory: trials that needed more than this beyond it are drawn at the edge."""


class HeadroomPoint(TrialMark):
    """One trial."""

    headroom_gib: float
    """Free memory of the fullest GPU, GiB: measured, or, if the trial ran out of memory, predicted;
    negative if it needs more than there is."""
    rate: float | None
    """Its rate; null if it ran out of memory."""


class MemoryFigure(RateFigure):
    """The rate of each trial against its free memory."""

    named = "Memory headroom"
    shows = "the rate of each trial against the memory that it leaves free"
    of_studies = True

    kind: Literal["memory"] = "memory"
    """Kind of figure."""
    gpu_memory_gib: float
    """Memory of a GPU, GiB."""
    wanted_gib: float
    """Minimum headroom of the campaign, GiB."""
    points: list[HeadroomPoint]
    """The trials; of thousands, a sample of each outcome."""

    @classmethod
    def of(cls, source: FigureSource) -> MemoryFigure:
        campaign = source.campaign
        whole = campaign.machine.memory_gib
        points = []
        for trial in source.trials:
            if trial.stands_for_nodes is not None:
                continue
            rate = objective_of(trial, campaign.request.objective)
            peak = trial.metrics.peak_memory_gib if trial.metrics else None
            if trial.state is TrialState.OOM:
                peak = trial.predicted_memory_gib
            if peak is None or (rate is None and trial.state is not TrialState.OOM):
                continue
            points.append(HeadroomPoint(**mark_of(trial), headroom_gib=whole - peak, rate=rate))
        unit = OBJECTIVE_UNITS[campaign.request.objective]
        drawn = thin(points)
        return cls._of_campaign(
            source,
            _memory_caption(points, whole, unit),
            table=table_of(_memory_cells(unit), drawn),
            gpu_memory_gib=whole,
            wanted_gib=campaign.request.min_headroom_gib,
            points=drawn,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        ran = any(trial.metrics and trial.metrics.peak_memory_gib for trial in source.measured)
        full = any(trial.state is TrialState.OOM for trial in source.trials)
        return "" if ran or full else "no trial has reported its memory yet"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        cells = _memory_cells(self.unit)
        rows, told = rows_of(cells, self.points), tooltip(cells)
        x = quantitative(
            "headroom_gib",
            title="memory left on the fullest GPU, GiB",
            axis={"tickCount": 8},
            scale={"domain": self._domain(), "nice": False, "padding": 14, "clamp": True},
        )
        limit = {"x": quantitative("headroom_gib")}
        named = limit | {"y": at(0), "text": nominal("label")}
        word: Spec = {"align": "left", "dx": 5, "dy": 8, "color": palette.faint, "fontSize": 11}
        lines = [{"headroom_gib": 0.0, "label": "all of the memory"}]
        if self.wanted_gib:
            lines.append({"headroom_gib": self.wanted_gib, "label": "asked to be left"})
        outcomes = [point.outcome for point in self.points]
        return trials_chart(
            rows,
            x,
            measured_axis("rate", rows, title=self.unit),
            palette,
            outcome=outcome_channels(palette, simulated=self.simulated, drawn=outcomes),
            tooltips=(told, told),
            behind=[
                limit_line("limits", limit, palette),
                layer("text", "limits", named, **word),
            ],
            data={"limits": lines},
        )

    def _domain(self) -> list[float]:
        """Return the ends of the axis; trials that need far more memory are drawn at the left."""
        left = [point.headroom_gib for point in self.points]
        return [min(0.0, max(min(left), -FARTHEST * self.gpu_memory_gib)), max(*left, 1.0)]


def _memory_cells(unit: str) -> Cells[HeadroomPoint]:
    return {
        "Trial": lambda point: str(point.number),
        "Outcome": lambda point: point.outcome.value,
        "GiB left": lambda point: (
            f"{point.headroom_gib:.1f}" + ("" if point.rate else " (predicted)")
        ),
        unit: lambda point: figure(point.rate),
        "Strategy": lambda point: point.strategy,
    }


def _memory_caption(points: list[HeadroomPoint], whole: float, unit: str) -> str:
    ran = [point for point in points if point.rate is not None]
    full = sum(point.rate is None for point in points)
    best = max(ran, key=lambda point: point.rate or 0.0, default=None)
    out = f"{plural(full, 'trial')} ran out of it" if full else "no trial ran out of it"
    if best is None:
        return f"Nothing has run: {out}."
    return (
        f"The fastest trial ({figure(best.rate)} {unit}) left {figure(best.headroom_gib)} of "
        f"{figure(whole)} GiB; {out}."
    )
