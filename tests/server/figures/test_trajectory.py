"""The search trajectory."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from autotune.schemas.choices import TrialState
from server.figures.outcome import FAILURES, Outcome, colour_of, thin
from server.figures.trajectory import trajectory, trajectory_chart
from server.figures.vega import PALETTES, Scheme
from tests.server.contrast import contrast
from tests.server.figures.subjects import START, campaign, trial


def test_best_so_far_rises_and_reaches_to_the_last_trial() -> None:
    rates = [100.0, None, 80.0, 300.0, 200.0]
    series = trajectory(campaign(), [trial(n, r) for n, r in enumerate(rates, start=1)])
    steps = [(step.x, step.number, step.objective) for step in series.best]
    assert steps == [(1.0, 1, 100.0), (4.0, 4, 300.0), (5.0, 4, 300.0)]


def test_failures_are_points_without_an_objective() -> None:
    states = [TrialState.OOM, TrialState.TIMEOUT, TrialState.CRASHED, TrialState.LOST]
    trials = [trial(n, None, state=state) for n, state in enumerate(states, start=1)]
    series = trajectory(campaign(), [*trials, trial(5, 10.0)])
    kinds = [Outcome.OOM, Outcome.TIMEOUT, Outcome.CRASHED, Outcome.OTHER]
    assert [point.outcome for point in series.points[:4]] == kinds
    assert all(point.objective is None for point in series.points[:4])
    assert series.failures == dict.fromkeys(kinds, 1)


def test_running_and_cancelled_trials_neither_measure_nor_fail() -> None:
    waiting = [trial(1, None, state=TrialState.PENDING), trial(2, None, state=TrialState.CANCELLED)]
    series = trajectory(campaign(), waiting)
    assert (series.points, series.failures, series.finished) == ([], {}, 0)
    assert series.summary == "No trial has finished yet."


def test_confirmations_are_marked() -> None:
    again = trial(2, 90.0, purpose="confirmation")
    failed = trial(3, None, purpose="confirmation")
    series = trajectory(campaign(), [trial(1, 100.0), again, failed])
    outcomes = [point.outcome for point in series.points]
    assert outcomes == [Outcome.SIMULATED, Outcome.CONFIRMED, Outcome.OOM]


@pytest.mark.parametrize("simulated", [True, False])
def test_only_what_was_measured_is_called_so(simulated: bool) -> None:
    """In the legend, in the tooltip and in the series."""
    series = trajectory(
        campaign(simulated=simulated), [trial(1, 3555.94456792, simulated=simulated)]
    )
    right, wrong = ("simulated", "measured") if simulated else ("measured", "simulated")
    assert series.points[0].outcome == right
    legends = json.dumps(trajectory_chart(series)["layer"])
    assert f'"{right}"' in legends
    assert f'"{wrong}", "' not in legends


def test_a_tooltip_has_names_units_and_rounded_figures() -> None:
    spec = trajectory_chart(trajectory(campaign(), [trial(1, 3555.94456792), trial(2, None)]))
    tips = [
        layer["encoding"]["tooltip"] for layer in spec["layer"] if "tooltip" in layer["encoding"]
    ]
    titles = [[field["title"] for field in fields] for fields in tips]
    assert titles == [
        ["trial", "layout", "result", "tokens/s"],
        ["trial", "layout", "result", "error"],
    ]
    assert tips[0][-1]["format"] == ",.4~r"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_failures_stand_out_from_their_lane(scheme: Scheme) -> None:
    palette = PALETTES[scheme]
    for outcome in FAILURES:
        assert contrast(colour_of(outcome, palette), palette.lane) >= 3.0, outcome


def test_the_best_is_compared_with_the_baseline() -> None:
    trials = [trial(1, 50.0, purpose="baseline"), trial(2, 40.0), trial(3, 100.0)]
    series = trajectory(campaign(), trials)
    assert series.baseline is not None
    assert (series.baseline.number, series.baseline.objective) == (1, 50.0)
    assert series.baseline.label == "a default layout"
    assert trajectory(campaign(), [trial(1, None, purpose="baseline")]).baseline is None
    many = [trial(1, 50.0), trial(2, 50.0, purpose="baseline")]
    many += [trial(n, float(n)) for n in range(3, 100)]
    assert 2 in {point.number for point in thin(trajectory(campaign(), many).points, maximum=9)}


def test_time_is_the_order_of_ending_in_a_unit_that_fits() -> None:
    late = trial(1, 100.0, finished_at=START + timedelta(minutes=9))
    series = trajectory(campaign(), [late, trial(2, 50.0)], by="time")
    assert series.x_title == "time since the start, minutes"
    assert [(point.number, point.x) for point in series.points] == [(2, 2.0), (1, 9.0)]
    assert [step.number for step in series.best] == [2, 1]


def test_node_hours_add_up() -> None:
    series = trajectory(campaign(), [trial(1, 1.0), trial(2, None)], by="node_hours")
    assert [point.x for point in series.points] == [0.5, 1.0]


def test_summary_says_what_the_chart_shows() -> None:
    series = trajectory(campaign(), [trial(1, 100.0), trial(2, 250.0), trial(3, None)])
    assert series.summary == (
        "Fastest single trial: 250 tokens/s, trial 2; "
        "3 trials finished, 1 failure (1 out of memory)."
    )
    alone = trajectory(campaign(), [trial(1, 100.0)])
    assert alone.summary == (
        "Fastest single trial: 100 tokens/s, trial 1; 1 trial finished, no failures."
    )
    failed = trajectory(campaign(), [trial(1, None)])
    assert "none with a result: 1 failure (1 out of memory)" in failed.summary


def test_thinning_keeps_improvements_confirmations_and_failures() -> None:
    rates: list[float | None] = [None if n % 7 == 0 else 50.0 + n % 5 for n in range(1, 500)]
    rates[250] = 900.0
    trials = [trial(n, rate) for n, rate in enumerate(rates, start=1)]
    trials += [trial(500, 1.0, purpose="confirmation"), trial(501, None, state="crashed")]
    series = trajectory(campaign(), trials)
    best = {step.number for step in series.best}
    points = thin(series.points, keep=best, maximum=300)
    drawn = {point.number for point in points}
    assert len(drawn) == len(points) < 310
    assert best | {251, 500, 501} <= drawn
    ooms = sum(point.outcome is Outcome.OOM for point in points)
    assert ooms == pytest.approx(series.failures[Outcome.OOM] / 2, abs=1)
    assert thin(points, maximum=310) == points
