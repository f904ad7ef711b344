"""Figures in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from server.dashboard.wording import (
    age,
    axis_unit,
    duration,
    figure,
    not_started,
    parameters,
    plural,
    seconds,
)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.01234, "0.0123"),
        (1.2345, "1.23"),
        (12.345, "12.3"),
        (12.0, "12"),
        (1234.5, "1,234"),
        (2.5e9, "2,500,000,000"),
    ],
)
def test_figure(value: float | None, words: str) -> None:
    assert figure(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (4.25, "4.2 s"),
        (59.0, "59 s"),
        (59.8, "1 min"),
        (200.0, "3 min 20 s"),
        (3600.0, "1 h"),
        (3900.0, "1 h 5 min"),
        (2 * 86400 + 3 * 3600.0, "2 d 3 h"),
        (1500.5 * 86400, "1,500 d"),
    ],
)
def test_duration(value: float | None, words: str) -> None:
    assert duration(value) == words


def test_seconds_of_an_iteration() -> None:
    assert [seconds(v) for v in (0.0123, 0.5, 1.5, 20.25)] == [
        "12.3 ms",
        "500 ms",
        "1.50 s",
        "20.2 s",
    ]


def test_age() -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    ages = [timedelta(seconds=5), timedelta(minutes=7), timedelta(hours=30), timedelta(days=9)]
    words = [age(now - passed, now=now) for passed in ages]
    assert words == ["just now", "7 min ago", "1 d ago", "9 d ago"]


def test_sizes_and_plurals() -> None:
    assert [parameters(n) for n in (12_345, 345e6, 22.1e9, 1.01e12)] == [
        "12.3K",
        "345M",
        "22.1B",
        "1.01T",
    ]
    assert (plural(1, "trial"), plural(1200, "trial")) == ("1 trial", "1,200 trials")


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [(10.0, "seconds"), (600.0, "minutes"), (20_000.0, "hours"), (1e6, "days")],
)
def test_axis_unit(longest_s: float, unit: str) -> None:
    assert axis_unit(longest_s)[0] == unit


@pytest.mark.parametrize(
    ("reasons", "words"),
    [
        ({"": 2}, "2 trials not started yet"),
        ({"held by the user (JobHeldUser)": 1}, "1 trial not started yet: held by the user"),
        ({"": 1, "held": 2}, "3 trials not started yet: held"),
        ({"held": 2, "waiting": 3, "": 1}, "6 trials not started yet: 3 × waiting, 2 × held"),
        (
            {"a": 1, "b": 5, "c": 4, "d": 3},
            "13 trials not started yet: 5 × b, 4 × c, 3 × d, 1 other reason",
        ),
    ],
)
def test_trials_that_have_not_started(reasons: dict[str, int], words: str) -> None:
    assert not_started(reasons).startswith(words)
