"""What the charts show, as typed series computed from the wire models alone.

The page, its JSON twin, the pictures and the tests all read these; scripts only map them to marks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field

from autotune.measurement import AccumulationMeasurement, accumulations
from autotune.objectives import OBJECTIVE_UNITS, keeps_headroom
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import (
    Accumulation,
    Campaign,
    Objective,
    Recommendation,
    StrategyShape,
    Trial,
    TrialPurpose,
    TrialState,
    Wire,
)
from server.dashboard.wording import axis_unit, figure, plural

MAXIMUM_POINTS = 3000
"""More marks than this cost the browser more than they tell the eye."""

NOTABLE_GAIN = 1.05
"""Less than this over the baseline, or the first measured trial, is not worth a word."""

BASELINE_LABELS = {True: "your own layout", False: "the customary layout"}
"""By whether the user gave it."""

Axis = Literal["trial", "time", "node_hours"]

NOT_DRAWN = frozenset({TrialState.PENDING, TrialState.CANCELLED})
"""Neither a measurement nor a failure; they are in the table of trials all the same."""


class Outcome(StrEnum):
    """How a finished trial is drawn; its value is the legend's word."""

    MEASURED = "measured"
    CONFIRMED = "confirmation"
    OOM = "out of memory"
    TIMEOUT = "time limit"
    CRASHED = "crashed"
    OTHER = "lost or refused"


FAILURES = (Outcome.OOM, Outcome.TIMEOUT, Outcome.CRASHED, Outcome.OTHER)
_OUTCOMES = {
    TrialState.OOM: Outcome.OOM,
    TrialState.TIMEOUT: Outcome.TIMEOUT,
    TrialState.CRASHED: Outcome.CRASHED,
}


class TrajectoryPoint(Wire):
    """One finished trial. `x` is in the unit of `Trajectory.x_title`; `objective` is None for a
    failure, which is drawn below the axis all the same."""

    number: int
    x: float
    objective: float | None
    outcome: Outcome
    purpose: TrialPurpose
    strategy: str
    note: str


class BestStep(Wire):
    """The best objective so far, from `x` on."""

    x: float
    objective: float
    number: int
    strategy: str


class BaselineLevel(Wire):
    """What the baseline reached: the level that all else is seen against."""

    number: int
    objective: float
    label: str


class Trajectory(Wire):
    """The search as it went: the source study's figure 9 (Dash et al. 2023, arXiv:2312.12705).

    `drawn` is smaller than `finished` where points were thinned; improvements, confirmations, the
    baseline and at least a share of every kind of failure are always among the drawn.
    """

    campaign_id: int
    objective: Objective
    objective_title: str
    simulated: bool
    by: Axis
    x_title: str
    points: list[TrajectoryPoint]
    best: list[BestStep] = Field(
        description="improvements; the last step repeats the best at the end"
    )
    baseline: BaselineLevel | None
    finished: int
    drawn: int
    failures: dict[Outcome, int]
    summary: str


class AccumulationSeries(Wire):
    """Throughput of one layout at each GAS: what was measured, and what the law says."""

    strategy: str
    simulated: bool
    points: list[Accumulation]


class RankMemory(Wire):
    rank: int
    peak_memory_gib: float


class MemorySeries(Wire):
    """Peak memory of each rank against one GPU's limit, GiB."""

    limit_gib: Annotated[float, Field(gt=0)]
    simulated: bool
    ranks: list[RankMemory]


def outcome_of(trial: Trial) -> Outcome:
    """Return how a finished trial is drawn."""
    if trial.state is TrialState.OK:
        return Outcome.CONFIRMED if trial.purpose == "confirmation" else Outcome.MEASURED
    return _OUTCOMES.get(trial.state, Outcome.OTHER)


def objective_of(trial: Trial, objective: Objective) -> float | None:
    """Return the trial's figure under `objective`; None unless it went well."""
    if trial.state is not TrialState.OK or trial.metrics is None:
        return None
    return float(getattr(trial.metrics, objective))


def trajectory(
    campaign: Campaign,
    trials: Sequence[Trial],
    *,
    by: Axis = "trial",
    maximum_points: int = MAXIMUM_POINTS,
) -> Trajectory:
    """Return what the trajectory chart shows, by trial number, by time, or by node-hours spent."""
    objective = campaign.request.objective
    drawable = [trial for trial in trials if trial.state not in NOT_DRAWN]
    x_title, places = _places(campaign, drawable, by=by)
    places = [(x, trial) for x, trial in places if trial.stands_for_nodes is None]
    points = [
        TrajectoryPoint(
            number=trial.number,
            x=x,
            objective=objective_of(trial, objective),
            outcome=outcome_of(trial),
            purpose=trial.purpose,
            strategy=strategy_line(trial.strategy),
            note=(trial.error or "")[:160],
        )
        for x, trial in places
    ]
    short = {t.number for t in drawable if t.metrics and not keeps_headroom(campaign, t.metrics)}
    best = best_so_far(points, excluded=short)
    baseline = _baseline_level(campaign, points)
    failures = Counter(p.outcome for p in points if p.objective is None)
    drawn = thin(points, keep={step.number for step in best}, maximum=maximum_points)
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
        summary=_summary(points, best, failures, objective, baseline=baseline)
        + _on_few_nodes(len(drawable) - len(points)),
    )


def _baseline_level(campaign: Campaign, points: Sequence[TrajectoryPoint]) -> BaselineLevel | None:
    """Return what the baseline reached; None without one, or where it failed."""
    for point in points:
        if point.purpose == "baseline" and point.objective is not None:
            label = BASELINE_LABELS[campaign.request.baseline is not None]
            return BaselineLevel(number=point.number, objective=point.objective, label=label)
    return None


def best_so_far(
    points: Sequence[TrajectoryPoint], *, excluded: Collection[int] = ()
) -> list[BestStep]:
    """Return each improvement, confirmations included, and the best once more at the last point.

    Args:
        excluded: numbers of the trials that leave less memory than the campaign asks for.
    """
    steps: list[BestStep] = []
    for point in points:
        objective = None if point.number in excluded else point.objective
        if objective is not None and (not steps or objective > steps[-1].objective):
            step = BestStep(
                x=point.x, objective=objective, number=point.number, strategy=point.strategy
            )
            steps.append(step)
    if steps and points[-1].x > steps[-1].x:
        steps.append(steps[-1].model_copy(update={"x": points[-1].x}))
    return steps


def thin(
    points: Sequence[TrajectoryPoint], *, keep: set[int], maximum: int = MAXIMUM_POINTS
) -> list[TrajectoryPoint]:
    """Return at most about `maximum` points, evenly from each outcome, in order.

    Trials in `keep`, confirmations and the baseline always stay, so that no record and no kind of
    failure vanishes.
    """
    if len(points) <= maximum:
        return list(points)
    stride = -(-len(points) // maximum)
    seen: Counter[Outcome] = Counter()
    kept = []
    for point in points:
        always = point.number in keep or point.purpose != "search"
        if always or seen[point.outcome] % stride == 0:
            kept.append(point)
        seen[point.outcome] += 1
    return kept


def accumulation_series(campaign: Campaign, trial: Trial) -> AccumulationSeries:
    """Return the throughput at each GAS that a trial's measurements tell of, smallest first."""
    measured = [
        AccumulationMeasurement(
            gradient_accumulation_steps=point.gradient_accumulation_steps,
            iteration_times_s=tuple(point.iteration_times_s),
        )
        for point in trial.accumulations
        if point.iteration_times_s
    ]
    points = accumulations(
        transformer_of(campaign.model),
        machine_of(campaign.machine),
        strategy_of(trial.strategy),
        measured,
    )
    return AccumulationSeries(
        strategy=strategy_line(trial.strategy), simulated=trial.simulated, points=points
    )


def best_accumulation_series(recommendation: Recommendation) -> AccumulationSeries:
    """Return the best layout's throughput at each GAS, from all its trials together."""
    return AccumulationSeries(
        strategy=strategy_line(recommendation.best.strategy),
        simulated=recommendation.simulated,
        points=recommendation.accumulations,
    )


def memory_series(trial: Trial, *, limit_gib: float) -> MemorySeries:
    """Return the peak memory of each rank of one trial."""
    ranks = enumerate(trial.peak_memory_gib_by_rank)
    return MemorySeries(
        limit_gib=limit_gib,
        simulated=trial.simulated,
        ranks=[RankMemory(rank=rank, peak_memory_gib=gib) for rank, gib in ranks],
    )


def _places(
    campaign: Campaign, trials: Sequence[Trial], *, by: Axis
) -> tuple[str, list[tuple[float, Trial]]]:
    """Return the axis's title and, in its order, where on it each trial stands."""
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


def strategy_line(strategy: StrategyShape) -> str:
    """Return a strategy in one line."""
    return strategy_of(strategy).short()


def _on_few_nodes(count: int) -> str:
    """Return that trials which stand for more nodes are not drawn: their rates are of few."""
    if not count:
        return ""
    return f" {plural(count, 'trial')} on few nodes that stand for more are in the table alone."


def _summary(
    points: Sequence[TrajectoryPoint],
    best: Sequence[BestStep],
    failures: Counter[Outcome],
    objective: Objective,
    *,
    baseline: BaselineLevel | None,
) -> str:
    """Return the chart in one sentence, for those who do not see it and those in a hurry."""
    if not points:
        return "No trial has finished yet."
    kinds = ", ".join(f"{failures[kind]} {kind}" for kind in FAILURES if failures[kind])
    failed = f"{plural(failures.total(), 'failure')} ({kinds})" if kinds else "no failures"
    if not best:
        return f"{plural(len(points), 'trial')} finished, none with a measurement: {failed}."
    top = best[-1]
    gain = top.objective / (baseline or best[0]).objective
    over = baseline.label if baseline else "the first measured"
    gained = f", {gain:.2g} times {over}" if gain >= NOTABLE_GAIN else ""
    title = OBJECTIVE_UNITS[objective]
    return (
        f"Best so far {figure(top.objective)} {title} in trial {top.number}{gained}; "
        f"{plural(len(points), 'trial')} finished, {failed}."
    )
