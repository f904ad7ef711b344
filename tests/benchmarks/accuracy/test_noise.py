"""What is beyond any model: repeats and contradictions, on rows written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.accuracy.measurements import Cells, stack_of_memory, stack_of_times
from tests.benchmarks.accuracy.noise import contradictions, noise_floor


def labelled(folder: Path, *rows: Cells) -> int:
    """The fewest labels that are wrong."""
    stack = stack_of_memory(folder, *rows)
    return contradictions(stack, np.array([row["status"] == "oom" for row in stack.rows]))


def test_repeats_lie_round_their_median(tmp_path: Path) -> None:
    alike: list[Cells] = [{"iteration_time_s": seconds} for seconds in (4.0, 5.0, 6.0)]
    others: list[Cells] = [{"global_batch_size": 64 + 8 * n} for n in range(12)]
    floor = noise_floor(stack_of_times(tmp_path, *alike, *others[1:]), "iteration_time_s")
    assert floor == pytest.approx((1 / 4 + 1 / 6) / 3)
    assert noise_floor(stack_of_times(tmp_path, *others), "iteration_time_s") is None
    assert noise_floor(stack_of_times(tmp_path, *others), "peak_memory_gb") is None


SMALL: Cells = {"micro_batch_size": 2, "status": "oom"}
LARGE: Cells = {"micro_batch_size": 4, "status": "ok"}


def test_a_larger_batch_that_fits_contradicts_a_smaller_one_that_does_not(tmp_path: Path) -> None:
    assert labelled(tmp_path, SMALL, LARGE) == 1
    assert labelled(tmp_path, {**SMALL, "status": "ok"}, {**LARGE, "status": "oom"}) == 0


def test_one_wrong_label_may_explain_many_pairs(tmp_path: Path) -> None:
    failures: list[Cells] = [{**SMALL, "micro_batch_size": size} for size in (1, 2, 3)]
    assert labelled(tmp_path, *failures, LARGE) == 1
    assert labelled(tmp_path, *failures, LARGE, {**LARGE, "micro_batch_size": 8}) == 2


@pytest.mark.parametrize(
    "less",
    [
        {"activation_checkpointing": "full"},
        {"attention_kernel": "fused"},
        {"attention_kernel": "flash", "flash_attention": 1},
    ],
)
def test_what_stores_less_and_fails_contradicts_what_stores_more(
    tmp_path: Path, less: Cells
) -> None:
    plain: Cells = {"activation_checkpointing": "none", "attention_kernel": "torch"}
    fitting: Cells = {**plain, "flash_attention": 0, "status": "ok"}
    assert labelled(tmp_path, fitting, {**fitting, **less, "status": "oom"}) == 1
    assert labelled(tmp_path, {**fitting, "status": "oom"}, {**fitting, **less}) == 0


@pytest.mark.parametrize("other", [{"tensor_parallel": 2}, {"model": "B"}, {"zero_stage": 1}])
def test_strategies_that_differ_otherwise_say_nothing_of_each_other(
    tmp_path: Path, other: Cells
) -> None:
    assert labelled(tmp_path, SMALL, {**LARGE, **other}) == 0


def test_one_that_needs_more_in_one_way_and_less_in_another_says_nothing(tmp_path: Path) -> None:
    assert labelled(tmp_path, {**SMALL, "activation_checkpointing": "none"}, LARGE) == 0
