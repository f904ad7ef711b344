"""The budget's end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from autotune.schemas.requests import Budget
from autotune.search import Rival, is_worth_confirming, reason_to_spare, reason_to_stop

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("budget", "trials", "node_hours", "expected"),
    [
        (Budget(max_trials=3), 2, 1e9, None),
        (Budget(max_trials=3), 3, 0.0, "Budget spent: 3 trials."),
        (Budget(max_trials=1), 1, 0.0, "Budget spent: 1 trial."),
        (Budget(max_node_hours=8), 1, 7.9, None),
        (Budget(max_node_hours=8), 1, 8.25, "Budget spent: 8.25 of 8 node-hours."),
        (Budget(deadline=NOW + timedelta(seconds=1)), 1, 0.0, None),
        (
            Budget(deadline=NOW),
            1,
            0.0,
            "Deadline passed: 2026-05-01T12:00+00:00.",
        ),
        (
            Budget(deadline=NOW.replace(tzinfo=None)),
            1,
            0.0,
            "Deadline passed: 2026-05-01T12:00.",
        ),
    ],
)
def test_the_first_limit_reached_is_named(
    budget: Budget, trials: int, node_hours: float, expected: str | None
) -> None:
    assert reason_to_stop(budget, trials=trials, node_hours=node_hours, now=NOW) == expected


def test_a_naive_clock_is_compared_with_an_aware_deadline() -> None:
    budget = Budget(deadline=NOW)
    later = (NOW + timedelta(hours=1)).replace(tzinfo=None)
    assert reason_to_stop(budget, trials=0, node_hours=0.0, now=later) is not None


def test_a_trial_is_spared_that_costs_more_than_it_saves() -> None:
    for unit in ("node-hours", "kWh"):
        found = reason_to_spare(2.1, saving=0.0014, training=1000.0, unit=unit, tokens=300e9)
        assert found == (
            f"Not worth another trial: it would cost 2.1 {unit} and is expected to save 1.4 over "
            "300 billion tokens."
        )
    worth = reason_to_spare(2.1, saving=0.0022, training=1000.0, unit="kWh", tokens=300e9)
    assert worth is None


def test_a_runner_up_is_measured_again_by_the_same_account() -> None:
    rival = Rival(probability_better=0.03, expected_saving=0.001)
    cost = {"cost": 0.5}
    assert not is_worth_confirming(rival, training=None, **cost)
    assert not is_worth_confirming(rival, training=400.0, **cost)
    assert is_worth_confirming(rival, training=600.0, **cost)
    likely = Rival(probability_better=0.3, expected_saving=0.001)
    assert is_worth_confirming(likely, training=None, **cost)
