"""How a finished trial is drawn, in every figure alike: failures by shape, not by colour alone."""

from __future__ import annotations

from enum import StrEnum

from autotune.schemas import Objective, Trial, TrialState

NOT_DRAWN = frozenset({TrialState.PENDING, TrialState.CANCELLED})
"""Neither a measurement nor a failure; they are in the table of trials all the same."""


class Outcome(StrEnum):
    """How a finished trial is drawn; its value is the legend's word."""

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
"""Of the marks, in Vega-Lite's words."""


def outcomes(*, simulated: bool) -> list[Outcome]:
    """Return all that trials of a campaign may come to: simulated ones are never measured."""
    other = Outcome.MEASURED if simulated else Outcome.SIMULATED
    return [outcome for outcome in Outcome if outcome is not other]


def outcome_of(trial: Trial) -> Outcome:
    """Return how a finished trial is drawn."""
    if trial.state is TrialState.OK:
        found = Outcome.SIMULATED if trial.simulated else Outcome.MEASURED
        return Outcome.CONFIRMED if trial.purpose == "confirmation" else found
    return outcome_of_state(trial.state)


def outcome_of_state(state: TrialState) -> Outcome:
    """Return how a failure is drawn."""
    return _OUTCOMES.get(state, Outcome.OTHER)


def objective_of(trial: Trial, objective: Objective) -> float | None:
    """Return the trial's figure under `objective`; None unless it went well."""
    if trial.state is not TrialState.OK or trial.metrics is None:
        return None
    return float(getattr(trial.metrics, objective))
