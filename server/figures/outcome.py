"""How finished trials are drawn in all figures: failures differ by shape, not by colour alone."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Any

from autotune.schemas.choices import Objective, TrialState
from autotune.schemas.trials import Trial
from server.figures.vega import Palette, Spec, at, by_value, expr, layer, nominal

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
    """Return the possible outcomes of a campaign's trials: simulated ones are never measured."""
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
    """Return the outcome of a failed trial."""
    return _OUTCOMES.get(state, Outcome.OTHER)


def objective_of(trial: Trial, objective: Objective) -> float | None:
    """Return the trial's objective; None if it has none."""
    if trial.state is not TrialState.OK or trial.metrics is None:
        return None
    return float(getattr(trial.metrics, objective))


FAILURE_LANE_PX = 34
"""Height of the strip at the bottom for failures."""

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
    told: Spec = {"title": None, "legend": {"values": shown}}
    return {
        "color": nominal("outcome", scale=by_value(names, colours), **told),
        "shape": nominal("outcome", scale=by_value(names, shapes), **told),
    }


def above_lane() -> list[Any]:
    """Return the range of a vertical scale above the strip."""
    return [expr(f"height - {FAILURE_LANE_PX}"), 0]


def lane_middle() -> Spec:
    """Return the vertical position of marks in the strip."""
    return at(expr(f"height - {(FAILURE_LANE_PX - 8) / 2}"))


def lane_layers(palette: Palette) -> list[Spec]:
    """Return the strip and its label; they need LANE_ROWS."""
    strip = {"y": at(expr(f"height - {FAILURE_LANE_PX - 8}")), "y2": at(expr("height"))}
    name: Spec = {"text": "failed", "align": "right", "color": palette.faint, "fontSize": 11}
    return [
        layer("rect", "lane", strip, color=palette.lane),
        layer("text", "lane", {"x": at(-7), "y": lane_middle()}, **name),
    ]


def mark_area_px(count: int) -> int:
    """Return the area of each of `count` marks."""
    return 90 if count <= 150 else 45 if count <= 800 else 22
