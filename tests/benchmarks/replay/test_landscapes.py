"""What is a landscape, what its strategies are, and what was known before it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import PLAIN, timed
from tests.benchmarks.replay.landscapes import Landscape, landscapes, stacks, usable

Cells = Mapping[str, object]

GRID: tuple[Cells, ...] = tuple(
    {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "data_parallel": 16 // (tensor * pipeline),
        "micro_batch_size": size,
        "iteration_time_s": 5.0 + tensor + 0.1 * pipeline - 0.01 * size,
    }
    for tensor in (2, 4)
    for pipeline in (1, 2)
    for size in (1, 2, 4)
)
"""Twelve strategies of PLAIN's model."""


def of(folder: Path, *rows: Cells) -> list[Landscape]:
    read = timed(folder, *rows)
    facts = Facts.of(read)
    kept, _ = usable(read, facts)
    return [landscape for stack in stacks(kept, facts) for landscape in landscapes(stack)]


def test_the_objective_is_tokens_per_second_on_one_gpu(tmp_path: Path) -> None:
    [landscape] = of(tmp_path, *GRID)
    assert landscape.name == "made-a100 / Megatron-LM / A100-80GB / GPT 22B / 16 GPUs / 2048 tokens"
    seconds = [float(str(row["iteration_time_s"])) for row in GRID]
    rates = [64 * 2048 / second / 16 for second in seconds]
    assert np.exp(landscape.log_rate) == pytest.approx(rates)


def test_eleven_strategies_are_no_landscape(tmp_path: Path) -> None:
    assert of(tmp_path, *GRID[1:]) == []
    assert of(tmp_path, *GRID[1:], GRID[1]) == []


def test_one_that_ran_out_of_memory_is_a_strategy(tmp_path: Path) -> None:
    [landscape] = of(tmp_path, {**GRID[0], "status": "oom", "iteration_time_s": ""}, *GRID[1:])
    assert np.flatnonzero(np.isnan(landscape.log_rate)).tolist() == [0]


def test_where_none_ran_there_is_nothing_to_find(tmp_path: Path) -> None:
    assert of(tmp_path, *({**row, "status": "oom", "iteration_time_s": ""} for row in GRID)) == []


def test_a_strategy_measured_again_counts_once_by_its_median(tmp_path: Path) -> None:
    again = [{**GRID[0], "iteration_time_s": seconds} for seconds in (8.0, 10.0)]
    failed = {**GRID[0], "status": "oom", "iteration_time_s": ""}
    [landscape] = of(tmp_path, *GRID, *again, failed)
    assert len(landscape) == len(GRID)
    assert np.exp(landscape.measured.log_time[0]) == pytest.approx(8.0)


def test_the_attention_kernel_tells_strategies_apart(tmp_path: Path) -> None:
    other = [{**row, "attention_kernel": "torch"} for row in GRID]
    [landscape] = of(tmp_path, *GRID, *other)
    assert len(landscape) == 2 * len(GRID)


def test_times_put_together_from_one_micro_batch_are_no_measurements(tmp_path: Path) -> None:
    one_node = [{**row, "cluster": "vtrain-a100", "num_gpus": 8} for row in GRID]
    several = [{**row, "cluster": "vtrain-a100"} for row in GRID]
    [landscape] = of(tmp_path, *one_node, *several)
    assert "16 GPUs" in landscape.name
    assert len(landscape.earlier) == 0


def test_gpus_of_another_memory_are_another_stack(tmp_path: Path) -> None:
    rows = [{**row, "gpu": gpu} for gpu in ("V100-16GB", "V100-32GB") for row in GRID]
    assert [each.machine.memory_gib for each in of(tmp_path, *rows)] == [16, 32]


def test_known_before_are_other_models(tmp_path: Path) -> None:
    other = [{**PLAIN, "model": "GPT 7B", "num_layers": 32, "hidden_size": 4096}]
    wider = [{**GRID[0], "num_gpus": 32, "data_parallel": 8}]
    [landscape] = of(tmp_path, *GRID, *other, *wider)
    assert landscape.earlier.columns["num_layers"].tolist() == [32]


def test_known_before_of_the_only_model_are_other_sizes_and_sequences(tmp_path: Path) -> None:
    wider = {**GRID[0], "num_gpus": 32, "data_parallel": 8}
    longer = {**GRID[0], "seq_length": 4096, "status": "oom", "iteration_time_s": ""}
    [landscape] = of(tmp_path, *GRID, wider, longer)
    assert landscape.earlier.columns["world_size"].tolist() == [32, 16]
    assert np.isnan(landscape.earlier.log_time).tolist() == [False, True]
