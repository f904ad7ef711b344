"""What is calibrated together, and which rows count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.accuracy import memory, throughput
from tests.benchmarks.accuracy.configurations import no_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import Cells, remembered, timed
from tests.benchmarks.accuracy.stacks import LEAST_ROWS, independent, named, stacks_of

NODE: Cells = {"num_gpus": 8, "data_parallel": 1, "global_batch_size": ""}


def names(folder: Path, *rows: Cells) -> list[str]:
    read = timed(folder, *rows)
    return list(named(stacks_of(read, Facts.of(read), zero_stage=no_zero)))


def test_a_cluster_with_one_framework_has_its_own_name(tmp_path: Path) -> None:
    assert names(tmp_path, {}, {"model": "B"}, {"cluster": "other"}) == ["made-a100", "other"]


def test_frameworks_and_gpus_of_another_kind_are_apart(tmp_path: Path) -> None:
    rows: list[Cells] = [{}, {"framework": "NeMo"}, {"gpu": "A100-40GB"}]
    assert names(tmp_path, *rows) == ["made-a100 / Megatron-LM", "made-a100 / NeMo"]
    kinds: list[Cells] = [{"gpu": "H100"}, {"gpu": "H200"}]
    assert names(tmp_path, *kinds) == ["made-a100 / H100", "made-a100 / H200"]


def line(*steps: int, bent: float = 0.0, **cells: object) -> list[Cells]:
    """Rows that differ in accumulation alone, on a line but for the last."""
    rows: list[Cells] = [
        {**NODE, "gradient_accumulation_steps": n, "iteration_time_s": 0.3 + 0.7 * n, **cells}
        for n in steps
    ]
    rows[-1]["iteration_time_s"] = (0.3 + 0.7 * steps[-1]) * (1.0 + bent)
    return rows


def accumulations(folder: Path, *rows: Cells) -> list[float]:
    return [row.figures["gradient_accumulation_steps"] for row in independent(timed(folder, *rows))]


def test_exactly_linear_rows_count_once_by_the_middle_one(tmp_path: Path) -> None:
    rows = line(8, 2, 4, 16, 32)
    assert accumulations(tmp_path, *rows) == [8]
    short = line(2, 4, tensor_parallel=8, pipeline_parallel=1)
    assert accumulations(tmp_path, *rows, *short) == [8, 4]


def test_one_series_off_its_line_shows_that_the_stack_was_measured(tmp_path: Path) -> None:
    measured = line(1, 2, 4, bent=1e-4, tensor_parallel=8, pipeline_parallel=1)
    rows = [*line(2, 4, 8), *measured]
    assert len(accumulations(tmp_path, *rows)) == 6
    elsewhere = [{**row, "framework": "NeMo"} for row in measured]
    assert accumulations(tmp_path, *line(2, 4, 8), *elsewhere) == [4, 1, 2, 4]


def test_two_rows_are_always_on_a_line_and_say_nothing(tmp_path: Path) -> None:
    assert accumulations(tmp_path, *line(2, 4)) == [2, 4]


def test_rows_on_several_nodes_count_each(tmp_path: Path) -> None:
    several = line(2, 4, 8, num_gpus=16, data_parallel=2)
    assert accumulations(tmp_path, *line(1, 2, 3), *several) == [2, 2, 4, 8]


def test_repeats_are_measurements_of_their_own(tmp_path: Path) -> None:
    assert accumulations(tmp_path, *line(2, 2, 2, bent=0.1)) == [2, 2, 2]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": "oom"}, "out of memory or not ended"),
        ({"iteration_time_s": ""}, "no iteration time"),
        ({"framework": "HF + ZeRO 3 + Full Offload"}, "offload to the host, not covered"),
        ({"num_experts": 128}, "mixture of experts of unknown widths"),
        ({"num_layers": ""}, "no shape or layout"),
        ({"hidden_size": ""}, "no shape or layout"),
        ({"tensor_parallel": ""}, "no shape or layout"),
        ({"pipeline_parallel": ""}, "no shape or layout"),
        ({"seq_length": "", "model": "another"}, "no shape or layout"),
    ],
)
def test_rows_that_cannot_be_judged_are_counted(
    tmp_path: Path, changed: Cells, reason: str
) -> None:
    rows = timed(tmp_path, *[{}] * LEAST_ROWS, changed, changed)
    stacks, left_out = throughput.stacks(rows, Facts.of(rows))
    assert [len(stack) for stack in stacks.values()] == [LEAST_ROWS]
    assert +left_out == {reason: 2}


def test_a_small_stack_is_not_judged(tmp_path: Path) -> None:
    rows = timed(tmp_path, *[{}] * LEAST_ROWS, {"framework": "NeMo"})
    stacks, left_out = throughput.stacks(rows, Facts.of(rows))
    assert list(stacks) == ["made-a100"]
    assert left_out[f"in a stack of fewer than {LEAST_ROWS}"] == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"status": "calc"}, "calculated, not measured"),
        ({"memory_kind": "paper-calculated"}, "calculated, not measured"),
        ({"status": "running"}, "neither fitted nor failed"),
        ({"framework": "ZeRO-Offload"}, "offload to the host, not covered"),
        ({"num_layers": ""}, "no shape, layout or activations"),
        ({"micro_batch_size": "", "seq_length": ""}, "no shape, layout or activations"),
    ],
)
def test_peaks_that_were_not_measured_are_left_out(
    tmp_path: Path, changed: Cells, reason: str
) -> None:
    rows = remembered(tmp_path, {}, {"status": "oom"}, {"status": "fits"}, changed)
    stacks, left_out = memory.stacks(rows, Facts.of(rows))
    assert [len(stack) for stack in stacks.values()] == [3]
    assert +left_out == {reason: 1}
