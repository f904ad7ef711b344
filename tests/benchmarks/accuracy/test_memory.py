"""Peaks, and what fits told from what does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.accuracy import memory
from tests.benchmarks.accuracy.measurements import Cells, measured, stack_of_memory
from tests.benchmarks.accuracy.memory import area_under_curve, best_threshold
from tests.benchmarks.accuracy.stacks import Stack

pytestmark = pytest.mark.xdist_group("accuracy")  # tables of one kind, made once


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    rows = [row for name in ("gpt-1.4b", "llama-2-7b") for row in measured(name, count=24)[1]]
    return stack_of_memory(tmp_path_factory.mktemp("tables"), *rows)


@pytest.mark.parametrize(
    ("fitted", "probability", "area"),
    [
        ([True, True, False, False], [0.9, 0.8, 0.3, 0.1], 1.0),
        ([True, True, False, False], [0.1, 0.2, 0.8, 0.9], 0.0),
        ([True, True, False, False], [0.9, 0.2, 0.3, 0.1], 0.75),
        ([True, False], [0.5, 0.5], 0.5),
    ],
)
def test_area_under_the_curve(fitted: list[bool], probability: list[float], area: float) -> None:
    assert area_under_curve(np.array(fitted), np.array(probability)) == pytest.approx(area)


def test_the_threshold_parts_what_can_be_parted() -> None:
    fitted = np.array([True, True, False, False])
    assert best_threshold(fitted, np.array([0.9, 0.4, 0.2, 0.1])) == pytest.approx(0.3)


def test_the_threshold_balances_where_neither_side_is_clean() -> None:
    fitted = np.array([True] * 4 + [False] * 4)
    probability = np.array([0.9, 0.8, 0.7, 0.3, 0.6, 0.2, 0.1, 0.05])
    threshold = best_threshold(fitted, probability)
    assert np.mean(probability[fitted] < threshold) <= 0.25
    assert np.mean(probability[~fitted] >= threshold) <= 0.25


def test_labels_are_learned_from_the_other_folds(made: Stack) -> None:
    done: list[None] = []
    labels = memory.labels([made], progress=lambda: done.append(None))
    assert labels is not None
    assert (labels.rows, labels.failures) == (48, sum(row["status"] == "oom" for row in made.rows))
    assert labels.auc > 0.95
    assert labels.auc >= labels.auc_zero_shot > 0.8
    assert labels.condemned(labels.threshold) < 0.15
    assert labels.missed(labels.threshold) < 0.15
    assert labels.condemned(0.0) == 0.0
    assert labels.missed(0.0) == 1.0
    assert len(done) + 2 == memory.calibrations(made, draws=2)


def test_peaks_are_learned_from_five(made: Stack) -> None:
    peaks = memory.peaks(made, draws=2)
    assert peaks is not None
    assert peaks.rows == sum(row.known("peak_memory_gb") for row in made.rows)
    assert peaks.after_5 < 0.06
    assert peaks.after_5 < peaks.zero_shot < 0.4


def test_a_limit_is_that_of_the_row(tmp_path: Path) -> None:
    """The same strategies on GPUs with 16 GB and with 80: half of them run out of memory."""
    rows = measured("gpt-1.4b", count=20)[1]
    small: list[Cells] = [{**row, "gpu_memory_gb": 1, "status": "oom"} for row in rows]
    large: list[Cells] = [{**row, "gpu_memory_gb": 80, "status": "ok"} for row in rows]
    labels = memory.labels([stack_of_memory(tmp_path, *small, *large)])
    assert labels is not None
    assert labels.auc_zero_shot == labels.auc == 1.0


def test_without_failures_or_peaks_there_is_nothing_to_judge(tmp_path: Path) -> None:
    fitting: list[Cells] = [{"status": "fits"}] * 12
    stack = stack_of_memory(tmp_path, *fitting)
    assert memory.labels([stack]) is None
    assert memory.peaks(stack, draws=1) is None
    assert memory.calibrations(stack, draws=1) == 0
    assert memory.overall([]) == (None, None)
