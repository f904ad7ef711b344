"""The series behind the charts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autotune.resolution import machine_shape, model_shape
from autotune.schemas import (
    Campaign,
    CampaignCreate,
    CampaignState,
    StrategyShape,
    Trial,
    TrialMetrics,
    TrialState,
)
from search_spaces.catalog import load_machine, load_model
from server.dashboard.series import Outcome, accumulation_series, memory_series, thin, trajectory

START = datetime(2026, 1, 1, tzinfo=UTC)


def campaign(**fields: Any) -> Campaign:
    request = CampaignCreate(model="gpt-22b", machine="frontier", nodes=2, evaluator="simulated")
    values: dict[str, Any] = {
        "id": 1,
        "name": "a campaign",
        "state": CampaignState.RUNNING,
        "reason": "",
        "simulated": True,
        "request": request,
        "model": model_shape(load_model("gpt-22b")),
        "machine": machine_shape(load_machine("frontier")),
        "created_at": START,
        "started_at": START,
        "finished_at": None,
        "trials": 0,
        "pending": 0,
        "failures": 0,
        "confirmations": 0,
        "node_hours": 0.0,
    }
    return Campaign(**(values | fields))


def trial(number: int, rate: float | None, **fields: Any) -> Trial:
    """Finished `number` minutes after the start, for half a node-hour; out of memory without a
    rate."""
    strategy = StrategyShape(
        tensor_parallel=8,
        pipeline_parallel=1,
        micro_batch_size=1,
        gradient_accumulation_steps=4,
        zero_stage=1,
        num_nodes=2,
    )
    values: dict[str, Any] = {
        "id": number,
        "campaign_id": 1,
        "number": number,
        "purpose": "search",
        "strategy": strategy,
        "token": f"t{number}",
        "state": TrialState.OOM if rate is None else TrialState.OK,
        "simulated": True,
        "created_at": START,
        "started_at": START,
        "finished_at": START + timedelta(minutes=number),
        "duration_s": 60.0,
        "node_hours": 0.5,
        "predicted_iteration_time_s": None,
        "predicted_memory_gib": None,
        "metrics": None if rate is None else metrics(rate),
        "accumulations": [],
        "peak_memory_gib_by_rank": [10.0, 12.5],
        "error": "out of memory" if rate is None else None,
        "log_path": None,
        "host": None,
        "versions": {},
    }
    return Trial(**(values | fields))


def metrics(rate: float) -> TrialMetrics:
    return TrialMetrics(
        gradient_accumulation_steps=4,
        global_batch_size=8,
        iteration_time_s=1.0,
        iteration_time_spread_s=0.01,
        measured=True,
        tokens_per_s=rate,
        tokens_per_s_per_gpu=rate / 16,
        tokens_per_node_hour=rate * 1800,
        model_tflops_per_gpu=1.0,
        hardware_tflops_per_gpu=1.3,
        mfu=0.3,
        hfu=0.4,
        peak_memory_gib=12.5,
        loss=None,
    )


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


def test_running_and_cancelled_trials_are_neither_measurements_nor_failures() -> None:
    waiting = [trial(1, None, state=TrialState.PENDING), trial(2, None, state=TrialState.CANCELLED)]
    series = trajectory(campaign(), waiting)
    assert (series.points, series.failures, series.finished) == ([], {}, 0)
    assert series.summary == "No trial has finished yet."


def test_confirmations_are_marked() -> None:
    again = trial(2, 90.0, purpose="confirmation")
    failed = trial(3, None, purpose="confirmation")
    series = trajectory(campaign(), [trial(1, 100.0), again, failed])
    outcomes = [point.outcome for point in series.points]
    assert outcomes == [Outcome.MEASURED, Outcome.CONFIRMED, Outcome.OOM]


def test_the_best_is_told_against_the_baseline() -> None:
    trials = [trial(1, 50.0, purpose="baseline"), trial(2, 40.0), trial(3, 100.0)]
    series = trajectory(campaign(), trials)
    assert series.baseline is not None
    assert (series.baseline.number, series.baseline.objective) == (1, 50.0)
    assert "2 times the customary layout" in series.summary
    assert trajectory(campaign(), [trial(1, None, purpose="baseline")]).baseline is None
    many = [trial(1, 50.0, purpose="baseline"), *(trial(n, float(n)) for n in range(2, 300))]
    assert 1 in [
        point.number for point in thin(trajectory(campaign(), many).points, keep=set(), maximum=9)
    ]


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
        "Best so far 250 tokens/s in trial 2, 2.5 times the first measured; "
        "3 trials finished, 1 failure (1 out of memory)."
    )
    alone = trajectory(campaign(), [trial(1, 100.0)])
    assert alone.summary == ("Best so far 100 tokens/s in trial 1; 1 trial finished, no failures.")
    failed = trajectory(campaign(), [trial(1, None)])
    assert "none with a measurement: 1 failure (1 out of memory)" in failed.summary


def test_thinning_keeps_improvements_confirmations_and_every_kind_of_failure() -> None:
    rates: list[float | None] = [None if n % 7 == 0 else 50.0 + n % 5 for n in range(1, 5000)]
    rates[2500] = 900.0
    trials = [trial(n, rate) for n, rate in enumerate(rates, start=1)]
    trials += [trial(5000, 1.0, purpose="confirmation"), trial(5001, None, state="crashed")]
    series = trajectory(campaign(), trials)
    drawn = {point.number for point in series.points}
    assert series.finished == 5001
    assert series.drawn == len(drawn) < 3100
    assert {step.number for step in series.best} <= drawn
    assert {2501, 5000, 5001} <= drawn
    ooms = sum(point.outcome is Outcome.OOM for point in series.points)
    assert ooms == pytest.approx(series.failures[Outcome.OOM] / 2, abs=1)


def test_few_points_are_not_thinned() -> None:
    points = trajectory(campaign(), [trial(n, 1.0) for n in range(1, 11)]).points
    assert thin(points, keep=set(), maximum=10) == points


def test_accumulations_follow_from_a_trials_two_measurements() -> None:
    measured = [
        {
            "gradient_accumulation_steps": gas,
            "global_batch_size": 2 * gas,
            "iteration_time_s": 1.0 + gas,
            "tokens_per_s": 1.0,
            "measured": True,
            "iteration_times_s": [1.0 + gas],
        }
        for gas in (2, 8)
    ]
    series = accumulation_series(campaign(), trial(1, 100.0, accumulations=measured))
    times = {p.gradient_accumulation_steps: p.iteration_time_s for p in series.points}
    assert times[2] == 3.0
    assert times[4] == pytest.approx(5.0)
    assert [p.gradient_accumulation_steps for p in series.points if p.measured] == [2, 8]
    assert accumulation_series(campaign(), trial(1, None)).points == []


def test_memory_by_rank() -> None:
    series = memory_series(trial(1, 100.0), limit_gib=64.0)
    assert [(r.rank, r.peak_memory_gib) for r in series.ranks] == [(0, 10.0), (1, 12.5)]
