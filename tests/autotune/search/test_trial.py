"""One trial for each layout."""

from __future__ import annotations

import itertools

import pytest

from autotune.search.trial import SearchTrial, merged
from search_spaces.strategy import Strategy

ONE = Strategy(
    tensor_parallel=1,
    pipeline_parallel=2,
    micro_batch_size=1,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=1,
)
TWIN = ONE.with_accumulation(16)


def ok(rate: float, *, peak: float | None = None, strategy: Strategy = ONE) -> SearchTrial:
    return SearchTrial(strategy=strategy, state="ok", objective=rate, peak_memory_gib=peak)


FAILED = SearchTrial(strategy=ONE, state="failed")
OOM = SearchTrial(strategy=ONE, state="failed", out_of_memory=True)
REFUSED = SearchTrial(strategy=TWIN, state="refused")
RUNNING = SearchTrial(strategy=TWIN, state="running")


def test_several_successes_count_by_their_median_and_highest_peak() -> None:
    one = merged([ok(100.0, peak=3.0), ok(400.0, peak=5.0), ok(110.0, strategy=TWIN)])
    assert len(one) == 1
    assert one[0].objective == pytest.approx(110.0)
    assert one[0].peak_memory_gib == 5.0


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


@pytest.mark.parametrize("rate", [None, 0.0, -1.0, float("nan"), float("inf")])
def test_a_success_needs_a_positive_rate(rate: float | None) -> None:
    with pytest.raises(ValueError, match="positive objective"):
        SearchTrial(strategy=ONE, state="ok", objective=rate)
