"""How finished trials are drawn in all figures: failures differ by shape, not only by colour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar

from autotune.schemas.choices import Objective, TrialState
from autotune.schemas.trials import Trial
from autotune.schemas.wire import TrialPurpose, Wire
from server.figures.vega import (
    Palette,
    Spec,
    at,
    axis,
    by_value,
    expr,
    finish,
    layer,
    nominal,
    quantitative,
    scale,
)

MAXIMUM_POINTS = 3000
"""Maximum number of marks, which a browser draws without delay."""

NOT_DRAWN = frozenset({TrialState.PENDING, TrialState.CANCELLED})
"""Neither measurements nor failures; the table of trials shows them."""


class Outcome(StrEnum):
    """Outcome of a finished trial, as labelled in legends."""

    MEASURED = "measured"
    SIMULATED = "simulated"
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

SHAPES = {
    Outcome.MEASURED: "circle",
    Outcome.SIMULATED: "circle",
    Outcome.CONFIRMED: "diamond",
    Outcome.OOM: "triangle-down",
    Outcome.TIMEOUT: "square",
    Outcome.CRASHED: "cross",
    Outcome.OTHER: "triangle-right",
}


def outcomes(*, simulated: bool) -> list[Outcome]:
    other = Outcome.MEASURED if simulated else Outcome.SIMULATED
    return [outcome for outcome in Outcome if outcome is not other]


def colour_of(outcome: Outcome, palette: Palette) -> str:
    """Return the colour of an outcome's marks."""
    return {
        Outcome.MEASURED: palette.measured,
        Outcome.SIMULATED: palette.measured,
        Outcome.CONFIRMED: palette.confirmed,
        Outcome.OOM: palette.oom,
        Outcome.TIMEOUT: palette.timeout,
        Outcome.CRASHED: palette.crashed,
        Outcome.OTHER: palette.other,
    }[outcome]


def outcome_of(trial: Trial) -> Outcome:
    """Return the outcome of a finished trial."""
    if trial.state is TrialState.OK:
        found = Outcome.SIMULATED if trial.simulated else Outcome.MEASURED
        return Outcome.CONFIRMED if trial.purpose == "confirmation" else found
    return outcome_of_state(trial.state)


def outcome_of_state(state: TrialState) -> Outcome:
    return _OUTCOMES.get(state, Outcome.OTHER)


def objective_of(trial: Trial, objective: Objective) -> float | None:
    if trial.state is not TrialState.OK or trial.metrics is None:
        return None
    return float(getattr(trial.metrics, objective))


class TrialMark(Wire):
    """One trial, as all figures show it."""

    number: int
    """The trial."""
    purpose: TrialPurpose
    """Why it was run."""
    outcome: Outcome
    """How it ended."""
    strategy: str
    """The strategy as text."""


def mark_of(trial: Trial) -> dict[str, Any]:
    """Return the fields of a trial's mark."""
    return {
        "number": trial.number,
        "purpose": trial.purpose,
        "outcome": outcome_of(trial),
        "strategy": trial.strategy.short(),
    }


Mark = TypeVar("Mark", bound=TrialMark)


def thin(
    points: Sequence[Mark], *, keep: Collection[int] = (), maximum: int = MAXIMUM_POINTS
) -> list[Mark]:
    """Return about `maximum` points, sampled evenly from each outcome, in order.

    Trials in `keep`, confirmations and the baseline are always returned.
    """
    if len(points) <= maximum:
        return list(points)
    stride = -(-len(points) // maximum)
    seen: Counter[Outcome] = Counter()
    sample = []
    for point in points:
        always = point.number in keep or point.purpose != "search"
        if always or seen[point.outcome] % stride == 0:
            sample.append(point)
        seen[point.outcome] += 1
    return sample


FAILURE_LANE_PX = 34
"""Height of the strip at the bottom for failures."""

TOP_PX = 6
"""Room for the uppermost marks, which are cut at the edge where a chart can be zoomed."""

ZOOM: Spec = {
    "name": "zoom",
    "bind": "scales",
    "select": {
        "type": "interval",
        "encodings": ["x"],
        "zoom": "wheel![event.ctrlKey]",
        "translate": "[pointerdown[event.pointerType === 'mouse' && (!event.item || "
        "event.item.mark.marktype === 'group')], window:pointerup] > window:pointermove!",
    },
}
"""The parameter by which a chart is zoomed along its horizontal axis; the page scrolls by the wheel
and by touch as everywhere."""

LANE_ROWS = {"lane": [{"lane": "failures"}]}
"""The single row of the strip."""


def outcome_channels(
    palette: Palette, *, simulated: bool, drawn: Collection[Outcome] | None = None
) -> Spec:
    """Return the colour and the shape of marks by the field `outcome`; the legend lists `drawn`, or
    by default all possible outcomes."""
    possible = outcomes(simulated=simulated)
    names = [outcome.value for outcome in possible]
    colours = [colour_of(outcome, palette) for outcome in possible]
    shapes = [SHAPES[outcome] for outcome in possible]
    shown = [outcome.value for outcome in possible if drawn is None or outcome in drawn]
    options: Spec = {"title": None, "legend": {"values": shown}}
    return {
        "color": nominal("outcome", scale=by_value(names, colours), **options),
        "shape": nominal("outcome", scale=by_value(names, shapes), **options),
    }


def above_lane() -> list[Any]:
    return [expr(f"height - {FAILURE_LANE_PX}"), TOP_PX]


def lane_middle() -> Spec:
    return at(expr(f"height - {(FAILURE_LANE_PX - 8) / 2}"))


def lane_layers(palette: Palette) -> list[Spec]:
    """Return the strip and its label; they need LANE_ROWS."""
    strip = {"y": at(expr(f"height - {FAILURE_LANE_PX - 8}")), "y2": at(expr("height"))}
    name: Spec = {"text": "failed", "align": "right", "color": palette.faint, "fontSize": 11}
    return [
        layer("rect", "lane", strip, color=palette.lane),
        layer("text", "lane", {"x": at(-7), "y": lane_middle()}, clip=False, **name),
    ]


def measured_axis(field: str, rows: Sequence[Spec], *, title: str, form: str = "~s") -> Spec:
    """Return the vertical channel of trials that have a value, above the strip."""
    some = any(row[field] is not None for row in rows)
    return quantitative(
        field,
        title=title,
        axis=axis(some, format=form, tickCount=6),
        scale=scale(some, zero=False, nice=True, range=above_lane()),
    )


def trials_chart(
    rows: Sequence[Spec],
    x: Spec,
    y: Spec,
    palette: Palette,
    *,
    outcome: Spec,
    tooltips: tuple[list[Spec], list[Spec]],
    behind: Sequence[Spec],
    data: Mapping[str, list[Spec]],
) -> Spec:
    """Return a chart with one mark per trial; those without a value of `y` are in the strip.

    Args:
        outcome: the channels of the outcome.
        tooltips: of trials with a value, and without one.
        behind: layers behind the marks, which need `data`.
    """
    measured = [row for row in rows if row[y["field"]] is not None]
    failed = [row for row in rows if row[y["field"]] is None]
    area = 90 if len(rows) <= 150 else 45 if len(rows) <= 800 else 22
    look: Spec = {"filled": True, "size": area, "strokeWidth": 0}
    mark = {"x": x, "y": y, **outcome, "tooltip": tooltips[0]}
    other = mark | {"y": lane_middle(), "tooltip": tooltips[1]}
    layers = [
        *lane_layers(palette),
        *behind,
        layer("point", "measured", mark, opacity=0.85, **look) | {"params": [ZOOM]},
        layer("point", "failed", other, opacity=1, **look),
    ]
    whole = {**LANE_ROWS, "measured": measured, "failed": failed, **data}
    return finish(layers, palette, whole, height=320)
