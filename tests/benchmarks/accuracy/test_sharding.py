"""Stages that a table states and a GPU cannot have held."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.accuracy import memory
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import Cells, remembered

CUT: Cells = {"tensor_parallel": 8, "pipeline_parallel": 1, "data_parallel": 2}
WHOLE: Cells = {"tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 16}
"""22 billion parameters on each GPU, at least 62 GB even under ZeRO-2; cut by 8 they are 8 GB."""


def stages(folder: Path, *rows: Cells) -> list[float]:
    read = remembered(folder, *rows)
    [stack] = memory.stacks(read, Facts.of(read))[0].values()
    return [float(stage) for stage in stack.columns["zero_stage"]]


@pytest.mark.parametrize("stated", [1, 2])
def test_what_could_not_have_been_held_was_divided(tmp_path: Path, stated: int) -> None:
    small = {"zero_stage": stated, "gpu_memory_gb": 40}
    assert stages(tmp_path, {**WHOLE, **small}) == [3]
    assert stages(tmp_path, {**CUT, **small}) == [stated]


def test_one_row_speaks_for_its_stack_and_stage(tmp_path: Path) -> None:
    rows: list[Cells] = [
        {**WHOLE, "zero_stage": 1},
        {**CUT, "zero_stage": 1},
        {**CUT, "zero_stage": 2},
        {**CUT, "zero_stage": 0},
        {**CUT, "zero_stage": ""},
    ]
    assert stages(tmp_path, *rows) == [3, 3, 2, 0, 0]


def test_a_failure_says_nothing_of_the_stage(tmp_path: Path) -> None:
    assert stages(tmp_path, {**WHOLE, "zero_stage": 1, "status": "oom"}) == [1]


def test_what_could_have_been_held_is_as_stated(tmp_path: Path) -> None:
    assert stages(tmp_path, {**WHOLE, "zero_stage": 1, "gpu_memory_gb": 192}) == [1]
    assert stages(tmp_path, {**WHOLE, "zero_stage": 0, "gpu_memory_gb": 40}) == [0]
