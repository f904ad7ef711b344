"""The course of a search: each finished trial, the best so far, failures, and the baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal

from autotune.baseline import baseline_name
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.recommendation.ranking import improvements
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective
from autotune.schemas.figures import FigureTable
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire
from autotune.words.quantities import axis_unit, figure, plural
from server.figures.figure import DrawnFigure
from server.figures.outcome import (
    FAILURES,
    NOT_DRAWN,
    Outcome,
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
    FIGURE,
    PALETTES,
    Scheme,
    Spec,
    axis,
    layer,
    nominal,
    ordinal,
    quantitative,
    reference_line,
    scale,
)

NOTHING_YET = "No trial has finished yet."

Axis = Literal["trial", "time", "node_hours"]


class TrajectoryPoint(TrialMark):
    """One finished trial."""

    x: float
    """Its position on the horizontal axis, in the unit of `x_title`."""
    objective: float | None
    """Its objective; null for a failure, which is drawn below the axis."""
    note: str
    """Why it failed; empty if it did not."""


class BestStep(Wire):
    """The best objective so far."""

    x: float
    """Start of the step, in the unit of `x_title`."""
    objective: float
    """The best objective."""
    number: int
    """The trial that reached it."""
    strategy: str
    """Its strategy as text."""


class BaselineLevel(Wire):
    """The baseline's objective."""

    number: int
    """The baseline's trial."""
    objective: float
    """Its objective."""
    label: str
    """Whether it is the user's layout or the default one, in words."""


class Trajectory(Wire):
    """The course of a search: the source study's figure 9 (Dash et al. 2023, arXiv:2312.12705)."""

    campaign_id: int
    """The campaign."""
    objective: Objective
    """The objective."""
    objective_title: str
    """Its unit."""
    simulated: bool
    """Whether its data is simulated by the cost model."""
    ended: bool
    """Whether the campaign has ended."""
    by: Axis
    """Quantity of the horizontal axis."""
    x_title: str
    """Its title, with the unit."""
    points: list[TrajectoryPoint]
    """The trials drawn; of thousands, all improvements, confirmations and the baseline, and a
    sample of the others of each outcome."""
    best: list[BestStep]
    """Improvements; the last step repeats the best at the end."""
    baseline: BaselineLevel | None
    """The baseline's objective; null if it has none."""
    finished: int
    """Trials that have finished."""
    drawn: int
    """Trials that are drawn."""
    failures: dict[Outcome, int]
    """Number of failures of each kind."""
    summary: str
    """Summary in a sentence."""


def trajectory(
    campaign: Campaign,
    trials: Sequence[Trial],
    *,
    by: Axis = "trial",
) -> Trajectory:
    """Return the series of the trajectory, by trial number, by time, or by node-hours."""
    objective = campaign.request.objective
    drawable = [trial for trial in trials if trial.state not in NOT_DRAWN]
    x_title, places = _places(campaign, drawable, by=by)
    places = [(x, trial) for x, trial in places if trial.stands_for_nodes is None]
    points = [
        TrajectoryPoint(
            **mark_of(trial),
            x=x,
            objective=objective_of(trial, objective),
            note=(trial.error or "")[:160],
        )
        for x, trial in places
    ]
    best = _best_steps(campaign, places, points)
    baseline = _baseline_level(campaign, [trial for _, trial in places], points)
    failures = Counter(p.outcome for p in points if p.objective is None)
    drawn = thin(points, keep={step.number for step in best})
    return Trajectory(
        campaign_id=campaign.id,
        objective=objective,
        objective_title=OBJECTIVE_UNITS[objective],
        simulated=campaign.simulated,
        by=by,
        x_title=x_title,
        points=drawn,
        best=best,
        baseline=baseline,
        finished=len(points),
        drawn=len(drawn),
        failures={outcome: failures[outcome] for outcome in FAILURES if failures[outcome]},
        ended=campaign.finished_at is not None,
        summary=_summary(points, best, failures, objective)
        + _undrawn(len(drawable) - len(points), layers=any(t.num_layers for t in drawable)),
    )


def _baseline_level(
    campaign: Campaign, trials: Sequence[Trial], points: Sequence[TrajectoryPoint]
) -> BaselineLevel | None:
    strategies = {trial.number: trial.strategy for trial in trials}
    for point in points:
        if point.purpose == "baseline" and point.objective is not None:
            strategy = strategies[point.number]
            label = baseline_name(campaign.request, campaign.model, campaign.machine, strategy)
            return BaselineLevel(number=point.number, objective=point.objective, label=label)
    return None


def _best_steps(
    campaign: Campaign, places: Sequence[tuple[float, Trial]], points: Sequence[TrajectoryPoint]
) -> list[BestStep]:
    by_number = {point.number: point for point in points}
    steps = [
        BestStep(x=point.x, objective=reached, number=point.number, strategy=point.strategy)
        for trial, reached in improvements(campaign, [trial for _, trial in places])
        for point in [by_number[trial.number]]
    ]
    if steps and points[-1].x > steps[-1].x:
        steps.append(steps[-1].model_copy(update={"x": points[-1].x}))
    return steps


def _places(
    campaign: Campaign, trials: Sequence[Trial], *, by: Axis
) -> tuple[str, list[tuple[float, Trial]]]:
    if by == "trial":
        ordered = sorted(trials, key=lambda t: t.number)
        return "trial", [(float(t.number), t) for t in ordered]
    start = campaign.started_at or campaign.created_at
    ordered = sorted(trials, key=lambda t: (t.finished_at or start, t.number))
    if by == "node_hours":
        spent = accumulate(t.node_hours or 0.0 for t in ordered)
        return "node-hours spent on trials", list(zip(spent, ordered, strict=True))
    seconds = [max(0.0, ((t.finished_at or start) - start).total_seconds()) for t in ordered]
    unit, length_s = axis_unit(max(seconds, default=0.0))
    places = [(s / length_s, t) for s, t in zip(seconds, ordered, strict=True)]
    return f"time since the start, {unit}", places


def _undrawn(count: int, *, layers: bool) -> str:
    if not count:
        return ""
    few = "with few layers" if layers else "on few nodes"
    return f" {plural(count, 'trial')} {few} that stand for more are only in the table."


def _summary(
    points: Sequence[TrajectoryPoint],
    best: Sequence[BestStep],
    failures: Counter[Outcome],
    objective: Objective,
) -> str:
    if not points:
        return NOTHING_YET
    kinds = ", ".join(f"{failures[kind]} {kind}" for kind in FAILURES if failures[kind])
    failed = f"{plural(failures.total(), 'failure')} ({kinds})" if kinds else "no failures"
    if not best:
        return f"{plural(len(points), 'trial')} finished, none with a result: {failed}."
    top = best[-1]
    title = OBJECTIVE_UNITS[objective]
    return (
        f"Fastest single trial: {figure(top.objective)} {title}, trial {top.number}; "
        f"{plural(len(points), 'trial')} finished, {failed}."
    )


def trajectory_chart(series: Trajectory, *, scheme: Scheme = "light") -> Spec:
    """Return the objective over trials, time or node-hours: the best so far as steps, the baseline
    as a dashed line, and failures in a strip at the bottom."""
    palette = PALETTES[scheme]
    x = quantitative(
        "x",
        title=series.x_title,
        axis=axis(series.finished > 0, **({"tickMinStep": 1} if series.by == "trial" else {})),
        scale=scale(series.finished > 0, nice=False, padding=8),
    )
    rows = [point.model_dump(mode="json") for point in series.points]
    y = measured_axis("objective", rows, title=series.objective_title)
    which = [
        ordinal("number", title="trial"),
        nominal("strategy", title="layout"),
        nominal("outcome", title="result"),
    ]
    rate = quantitative("objective", title=series.objective_title, format=FIGURE)
    steps: Spec = {"interpolate": "step-after", "strokeWidth": 1.5, "strokeOpacity": 0.75}
    return trials_chart(
        rows,
        x,
        y,
        palette,
        outcome=outcome_channels(
            palette,
            simulated=series.simulated,
            drawn={point.outcome for point in series.points} if series.ended else None,
        ),
        tooltips=([*which, rate], [*which, nominal("note", title="error")]),
        behind=[
            *reference_line("baseline", y, palette),
            layer("line", "best", {"x": x, "y": y}, color=palette.text, **steps),
        ],
        data={
            "baseline": [series.baseline.model_dump()] if series.baseline else [],
            "best": [step.model_dump(mode="json") for step in series.best],
        },
    )


class TrajectoryFigure(DrawnFigure):
    """The search trajectory of a campaign."""

    named = "Search trajectory"
    shows = "every trial, the best so far, and failures"
    filters = ("by",)

    kind: Literal["trajectory"] = "trajectory"
    """Kind of figure."""
    series: Trajectory
    """The course of the search."""

    @classmethod
    def of(cls, source: FigureSource, *, by: Axis = "trial") -> TrajectoryFigure:
        series = trajectory(source.campaign, source.layouts, by=by)
        steps = {step.number: step for step in series.best}.values()
        rows = [[str(step.number), figure(step.objective), step.strategy] for step in steps]
        return cls._of_campaign(
            source,
            series.summary,
            table=FigureTable(columns=["Trial", series.objective_title, "Layout"], rows=rows),
            series=series,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        return "" if source.trials else "no trial has been started yet"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return trajectory_chart(self.series, scheme=scheme)

    def described_chart(self, *, scheme: Scheme = "light") -> Spec:
        spec = super().described_chart(scheme=scheme)
        rest = self.series.model_dump(mode="json", exclude={"points"})
        return spec | {"usermeta": spec["usermeta"] | {"series": rest}}
