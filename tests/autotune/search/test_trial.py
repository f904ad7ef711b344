"""One trial for each strategy."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from autotune.search.trial import SearchTrial, merged
from search_spaces.strategy import Strategy
from tests.autotune.records import strategy

ONE = strategy(tp=1, pp=2, gas=8, nodes=1)
TWIN = ONE.with_accumulation(16)


def ok(seconds: float, *, peak: float | None = None, subject: Strategy = ONE) -> SearchTrial:
    return SearchTrial(strategy=subject, state="ok", iteration_time_s=seconds, peak_memory_gib=peak)


FAILED = SearchTrial(strategy=ONE, state="failed", cause="no such file")
OOM = SearchTrial(strategy=ONE, state="failed", out_of_memory=True)
REFUSED = SearchTrial(strategy=ONE, state="refused")
RUNNING = SearchTrial(strategy=ONE, state="running")


def test_successes_count_by_median_time_and_highest_peak() -> None:
    one, twin = merged([ok(1.0, peak=3.0), ok(4.0, peak=5.0), ok(1.1), ok(9.0, subject=TWIN)])
    assert one.iteration_time_s == pytest.approx(1.1)
    assert one.peak_memory_gib == 5.0
    assert twin.iteration_time_s == 9.0


def test_a_measured_time_replaces_one_that_follows_from_others() -> None:
    projected, confirmed = ok(1.0), replace(ok(1.2), measured=True)
    [one] = merged([projected, confirmed, ok(0.9)])
    assert one.iteration_time_s == 1.2
    assert one.measured


@pytest.mark.parametrize(
    ("same", "state", "out_of_memory"),
    [
        ([ok(1.0), FAILED, RUNNING], "ok", False),
        ([OOM, RUNNING], "running", False),
        ([FAILED, OOM], "failed", True),
        ([FAILED], "failed", False),
        ([REFUSED, FAILED], "failed", False),
        ([REFUSED, RUNNING], "running", False),
        ([REFUSED], "refused", False),
    ],
)
def test_the_best_news_of_a_layout_counts_in_any_order(
    same: list[SearchTrial], state: str, out_of_memory: bool
) -> None:
    for order in itertools.permutations(same):
        (one,) = merged(order)
        assert (one.state, one.out_of_memory) == (state, out_of_memory)
        assert one.cause == (FAILED.cause if state == "failed" and not out_of_memory else "")


@pytest.mark.parametrize("seconds", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_success_needs_a_positive_time(seconds: float | None) -> None:
    with pytest.raises(ValueError, match="positive iteration time"):
        SearchTrial(strategy=ONE, state="ok", iteration_time_s=seconds)
