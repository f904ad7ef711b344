"""A trial's time limit, as pure functions."""

from __future__ import annotations

import time

import pytest

from evaluators.time_limit import (
    command_within,
    ended_by_limit,
    longest_s,
    reached,
    slurm_minutes,
)


@pytest.mark.parametrize(("limit_s", "minutes"), [(1.0, 2), (60.0, 2), (61.0, 3), (1200.0, 21)])
def test_slurm_gets_whole_minutes_above_the_limit(limit_s: float, minutes: int) -> None:
    assert slurm_minutes(limit_s) == minutes
    assert 60 * minutes > longest_s(limit_s), "timeout comes first"


@pytest.mark.parametrize(
    ("exit_code", "duration_s", "by_limit"),
    [(124, 60.0, True), (137, 75.0, True), (124, 59.5, True), (137, 20.0, False), (1, 60.0, False)],
)
def test_only_an_end_at_the_limit_is_one_by_it(
    exit_code: int, duration_s: float, by_limit: bool
) -> None:
    assert ended_by_limit(exit_code, duration_s=duration_s, time_limit_s=60.0) is by_limit


def test_commands_are_ended_and_then_killed() -> None:
    assert command_within(1.5, "bash body.sh") == "timeout --kill-after=15 1.500 bash body.sh"


def test_a_limit_is_reached_when_its_time_has_passed() -> None:
    now = time.monotonic()
    assert reached(now - 10, time_limit_s=10.0)
    assert not reached(now, time_limit_s=10.0)
