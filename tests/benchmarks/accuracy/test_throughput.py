"""Errors, ranks and noise of iteration times."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.accuracy import throughput
from tests.benchmarks.accuracy.judgement import consistent, overall
from tests.benchmarks.accuracy.measurements import Cells, measured, stack_of_times
from tests.benchmarks.accuracy.throughput import StackAccuracy, accuracy, mape, rank

pytestmark = pytest.mark.xdist_group("accuracy")  # tables of one kind, made once


def test_an_error_is_a_fraction_of_what_was_measured() -> None:
    times, predicted = np.log([1.0, 2.0, 4.0]), np.log([1.1, 1.8, 4.0])
    assert mape(times, predicted) == pytest.approx(0.2 / 3)


def test_regret_is_the_rate_lost_by_taking_the_predicted_best() -> None:
    times = np.log([4.0, 5.0, 6.0, 7.0, 8.0])
    alone = [np.array([row]) for row in range(5)]
    assert rank(times, times + 0.3, alone) == pytest.approx((1.0, 0.0))
    assert rank(times, -times, alone) == pytest.approx((-1.0, 0.5))


def test_a_strategy_that_was_measured_twice_counts_once_by_its_median() -> None:
    times, predicted = np.log([4.0, 9.0, 5.0, 7.0]), np.log([1.0, 1.0, 2.0, 3.0])
    strategies = [np.array([0, 1]), np.array([2]), np.array([3])]
    tau, regret = rank(times, predicted, strategies)
    assert tau == pytest.approx(1 / 3)
    assert regret == pytest.approx(1 - 5 / np.sqrt(4 * 9))


def test_strategies_with_other_batches_are_ranked_by_their_rates(tmp_path: Path) -> None:
    """Longer steps of larger batches win where each sample takes less."""
    rows: list[Cells] = [
        {"global_batch_size": 16 * 2**n, "iteration_time_s": 2.0**n * (1.0 + 0.5 / 2**n)}
        for n in range(6)
    ]
    figures = accuracy(stack_of_times(tmp_path, *rows, *rows), draws=2)
    assert figures.landscapes == 1
    assert (figures.kendall_tau or 0.0) > 0.8
    assert (figures.top1_regret_after_5 or 0.0) < 0.02
    assert figures.same_batch_regret_after_5 is None


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[StackAccuracy, int, int]:
    """Two models, 24 strategies each: figures, calibrations foretold and done."""
    rows = [row for name in ("gpt-1.4b", "llama-2-7b") for row in measured(name, count=24)[0]]
    stack = stack_of_times(tmp_path_factory.mktemp("tables"), *rows)
    done: list[None] = []
    figures = accuracy(stack, draws=2, progress=lambda: done.append(None))
    return figures, throughput.calibrations(stack, draws=2), len(done)


def test_a_machine_like_the_model_is_learned_from_few_trials(
    judged: tuple[StackAccuracy, int, int],
) -> None:
    figures = judged[0]
    assert (figures.rows, figures.models, figures.landscapes) == (48, 2, 2)
    after = {size: figures.mape_after[size] or 1.0 for size in throughput.SIZES}
    assert after[5] < 0.06
    assert after[20] < 0.03
    assert after[20] < after[3] < figures.zero_shot_mape
    assert 0.7 < (figures.coverage_80 or 0.0) <= 1.0
    assert 0.7 < (figures.kendall_tau or 0.0) <= 1.0
    assert 0.0 <= (figures.top1_regret_after_5 or 0.0) < 0.05
    assert figures.leave_one_model_out_mape is not None
    assert figures.leave_one_model_out_mape < 0.2


def test_progress_is_foretold(judged: tuple[StackAccuracy, int, int]) -> None:
    assert judged[1] == judged[2] == 2 * len(throughput.SIZES) + 2


def test_what_had_no_rows_is_none(tmp_path: Path) -> None:
    """A stack of one model, two of its strategies, and too small for 10 trials."""
    rows = measured("gpt-1.4b", count=2)[0] * 6
    figures = accuracy(stack_of_times(tmp_path, *rows), draws=1)
    assert figures.mape_after[10] is figures.mape_after[20] is None
    assert figures.mape_after[5] is not None
    assert figures.leave_one_model_out_mape is None
    assert figures.kendall_tau is figures.top1_regret_after_5 is None
    assert figures.noise_floor == 0.0


def test_overall_counts_stacks_alike_and_leaves_out_what_is_none(
    judged: tuple[StackAccuracy, int, int], tmp_path: Path
) -> None:
    other = accuracy(stack_of_times(tmp_path, *measured("gpt-1.4b", count=12)[0]), draws=1)
    whole = overall([judged[0], other])
    assert whole["rows"] == 60
    mean = (judged[0].zero_shot_mape + other.zero_shot_mape) / 2
    assert whole["zero_shot_mape"] == pytest.approx(mean)
    assert whole["mape_after"]["20"] == judged[0].mape_after[20]
    assert overall([])["zero_shot_mape"] is None


def test_a_stack_whose_repeats_contradict_each_other_is_told_apart(
    judged: tuple[StackAccuracy, int, int],
) -> None:
    assert consistent(judged[0])
    assert consistent(replace(judged[0], noise_floor=0.06))
    assert not consistent(replace(judged[0], noise_floor=0.061))
