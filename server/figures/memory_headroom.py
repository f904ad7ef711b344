"""The rate of each trial against the free memory of its fullest GPU."""

from __future__ import annotations

from typing import Literal

from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.choices import TrialState
from autotune.schemas.wire import TrialPurpose, Wire
from autotune.wording import figure
from server.figures.figure import Cells, DrawnFigure, rows_of, table_of, tooltip
from server.figures.outcome import (
    LANE_ROWS,
    Outcome,
    above_lane,
    lane_layers,
    lane_middle,
    mark_area_px,
    objective_of,
    outcome_channels,
    outcome_of,
)
from server.figures.source import FigureSource
from server.figures.trajectory import thin
from server.figures.vega import (
    PALETTES,
    Scheme,
    Spec,
    at,
    axis,
    finish,
    layer,
    limit_line,
    nominal,
    quantitative,
    scale,
)
from server.wording import plural, strategy_line

FARTHEST = 0.3
"""Share of a GPU's memory: trials that needed more than this beyond it are drawn at the edge."""


class HeadroomPoint(Wire):
    """One trial."""

    number: int
    """The trial."""
    purpose: TrialPurpose
    """Why it was run."""
    strategy: str
    """The strategy as text."""
    outcome: Outcome
    """How it ended."""
    headroom_gib: float
    """Free memory of the fullest GPU, GiB: measured, or, if the trial ran out of memory, predicted;
    negative if it needs more than there is."""
    rate: float | None
    """Its rate; null if it ran out of memory."""


class MemoryFigure(DrawnFigure):
    """The rate of each trial against its free memory."""

    kind: Literal["memory"] = "memory"
    """Kind of figure."""
    unit: str
    """Unit of the rate."""
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
            points.append(
                HeadroomPoint(
                    number=trial.number,
                    purpose=trial.purpose,
                    strategy=strategy_line(trial.strategy),
                    outcome=outcome_of(trial),
                    headroom_gib=whole - peak,
                    rate=rate,
                )
            )
        unit = OBJECTIVE_UNITS[campaign.request.objective]
        drawn = thin(points)
        return cls(
            **source.head(title="Memory headroom", caption=_caption(points, whole, unit)),
            table=table_of(_cells(unit), drawn),
            unit=unit,
            gpu_memory_gib=whole,
            wanted_gib=campaign.request.min_headroom_gib,
            points=drawn,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        cells = _cells(self.unit)
        rows = rows_of(cells, self.points)
        measured = [row for row in rows if row["rate"] is not None]
        failed = [row for row in rows if row["rate"] is None]
        x = quantitative(
            "headroom_gib",
            title="memory left on the fullest GPU, GiB",
            scale={"domain": self._domain(), "nice": False, "padding": 14, "clamp": True},
        )
        y = quantitative(
            "rate",
            title=self.unit,
            axis=axis(bool(measured), format="~s", tickCount=6),
            scale=scale(bool(measured), range=above_lane()),
        )
        outcomes = [point.outcome for point in self.points]
        outcome = outcome_channels(palette, simulated=self.simulated, drawn=outcomes)
        mark = {"x": x, "y": y, **outcome, "tooltip": tooltip(cells)}
        look: Spec = {"filled": True, "size": mark_area_px(len(rows)), "strokeWidth": 0}
        limit = {"x": quantitative("headroom_gib")}
        named = limit | {"y": at(0), "text": nominal("label")}
        word: Spec = {"align": "left", "dx": 5, "dy": 8, "color": palette.faint, "fontSize": 11}
        layers = [
            *lane_layers(palette),
            limit_line("limits", limit, palette),
            layer("text", "limits", named, **word),
            layer("point", "measured", mark, opacity=0.85, **look),
            layer("point", "failed", mark | {"y": lane_middle()}, opacity=1, **look),
        ]
        lines = [{"headroom_gib": 0.0, "label": "all of the memory"}]
        if self.wanted_gib:
            lines.append({"headroom_gib": self.wanted_gib, "label": "asked to be left"})
        data = {**LANE_ROWS, "measured": measured, "failed": failed, "limits": lines}
        return finish(layers, palette, data, height=320)

    def _domain(self) -> list[float]:
        """Return the ends of the axis; trials that need far more memory are drawn at the left."""
        left = [point.headroom_gib for point in self.points]
        return [min(0.0, max(min(left), -FARTHEST * self.gpu_memory_gib)), max(*left, 1.0)]


def _cells(unit: str) -> Cells[HeadroomPoint]:
    return {
        "Trial": lambda point: str(point.number),
        "Outcome": lambda point: point.outcome.value,
        "GiB left": lambda point: (
            f"{point.headroom_gib:.1f}" + ("" if point.rate else " (predicted)")
        ),
        unit: lambda point: figure(point.rate),
        "Strategy": lambda point: point.strategy,
    }


def missing(source: FigureSource) -> str:
    """Return why no trial's memory is known; empty if one is."""
    ran = any(trial.metrics and trial.metrics.peak_memory_gib for trial in source.measured)
    full = any(trial.state is TrialState.OOM for trial in source.trials)
    return "" if ran or full else "no trial has reported its memory yet"


def _caption(points: list[HeadroomPoint], whole: float, unit: str) -> str:
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
