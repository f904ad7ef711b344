"""The series of one layout."""

from __future__ import annotations

import pytest

from server.dashboard.series import accumulation_series, memory_series
from tests.server.figures.subjects import campaign, trial


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
