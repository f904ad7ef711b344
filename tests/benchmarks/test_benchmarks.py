"""Each benchmark on a small made-up table: it prints its figures and writes its document."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import knob_replay, search_replay
from tests.benchmarks.accuracy import __main__ as accuracy
from tests.benchmarks.accuracy.memory_2026 import GOLDEN
from tests.benchmarks.accuracy.tables import OPTIONAL, THROUGHPUT
from tests.benchmarks.one_gpu import __main__ as one_gpu
from tests.benchmarks.one_gpu.table import COLUMNS

Cells = Mapping[str, object]

PLAIN: Cells = {
    "cluster": "made-a100",
    "framework": "Megatron-LM",
    "gpu": "A100-80GB",
    "model": "GPT 22B",
    "status": "ok",
    "activation_checkpointing": "full",
    "precision": "bf16",
    "num_gpus": 16,
    "gpus_per_node": 8,
    "num_layers": 48,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "ffn_hidden_size": 24576,
    "seq_length": 2048,
    "vocab_size": 50257,
    "tensor_parallel": 4,
    "pipeline_parallel": 2,
    "data_parallel": 2,
    "micro_batch_size": 2,
    "global_batch_size": 64,
    "gated_mlp": 0,
    "iteration_time_s": 5.0,
    "gpu_memory_gb": 80,
    "peak_memory_gb": 60.0,
    "memory_kind": "measured",
}
GRID = [
    {
        **PLAIN,
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "data_parallel": 16 // (tensor * pipeline),
        "micro_batch_size": size,
        "iteration_time_s": 5.0 + tensor + 0.1 * pipeline - 0.01 * size,
    }
    for tensor in (2, 4)
    for pipeline in (1, 2)
    for size in (1, 2, 4)
]
"""Twelve strategies: the least that a search is replayed on."""
NEWER = [
    {**PLAIN, "micro_batch_size": size, "config_id": str(size), "offload": offload}
    for size, offload in ((1, 0), (2, 0), (4, 1))
]
PEAKS = [
    {
        **dict.fromkeys(GOLDEN[9:], 1),
        **{name: value for name, value in PLAIN.items() if name in GOLDEN},
        "world_source": "recipe",
        "config_id": str(size),
        "micro_batch_size": size,
        "num_query_groups": 64,
        "world_size": 16,
        "head_dim": 96,
        "num_experts": 8,
        **dict.fromkeys(("num_dense_layers", "mtp_layers", "mla"), 0),
        "mem_allocated_bytes": 5e9,
        "mem_max_early_bytes": 3e10 + 1e9 * size,
    }
    for size in (1, 2, 4)
]
CHOICES = [
    {**PLAIN, "grid_id": "made", "num_gpus": 16, "tensor_parallel": tensor, "mfu": mfu}
    for tensor, mfu in ((1, 0.5), (4, 0.3), (8, 0.2))
]
ON_ONE_GPU = [
    {
        **dict.fromkeys(COLUMNS, 1),
        **{name: value for name, value in PLAIN.items() if name in COLUMNS},
        "num_layers": 12,
        "hidden_size": 768,
        "num_attention_heads": 12,
        "ffn_hidden_size": 3072,
        "num_query_groups": 12,
        "gated_mlp": 0,
        "zero_stage": 0,
        "sequence_parallel": 0,
        **dict.fromkeys(("num_experts", "moe_top_k", "moe_ffn_hidden_size"), ""),
        **dict.fromkeys(("num_gpus", "gpus_per_node", "data_parallel", "tensor_parallel"), 1),
        "pipeline_parallel": 1,
        "flash_attention": flash,
        "micro_batch_size": size,
        "gpu_idle_watt": 60,
        "gpu_max_watt": 400,
        "gpu_joules_per_token": 0.01,
        "iteration_time_s": 0.1 * size,
        "peak_memory_gb": 2.0 * size,
    }
    for size in (1, 2, 4, 8)
    for flash in (0, 1)
]


def written(path: Path, rows: Sequence[Cells], columns: Sequence[str] = ()) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


def tables(folder: Path) -> list[str]:
    older, newer = (*THROUGHPUT, "peak_memory_gb", "memory_kind", "gpu_memory_gb"), OPTIONAL
    times = [
        written(folder / "times.csv", GRID, older),
        written(folder / "newer.csv", NEWER, (*older, *newer)),
    ]
    peaks = [times[0], written(folder / "golden.csv", PEAKS, GOLDEN)]
    return ["--throughput", *times, "--memory", *peaks, "--draws", "1"]


def grids(folder: Path) -> list[str]:
    times = written(folder / "times.csv", [*GRID, {**GRID[0], "num_gpus": 32, "data_parallel": 16}])
    choices = written(folder / "grids.csv", CHOICES)
    picture = str(folder / "regret.svg")
    return [
        *("--throughput", times, "--grids", choices, "--picture", picture),
        *("--seeds", "1", "--processes", "1", "--searches", "ours", "random"),
        *("ours_imported", "pruned_deephyper", "stock_deephyper", "optuna_gp"),
    ]


def trials(folder: Path) -> list[str]:
    return ["evaluate", written(folder / "trials.csv", ON_ONE_GPU, COLUMNS), "--draws", "1"]


def series(folder: Path) -> list[str]:
    """Four runs of each of two systems, one submitted twice."""
    rows = [
        {
            **dict(zip(knob_replay.COLUMNS, ("v5.1", "made", system, "llama", run), strict=False)),
            "sample": sample,
            "time_s": 1.0 + 0.002 * max(run, 1) + 0.001 * (sample % 2),
        }
        for system in ("one", "other")
        for run in range(5)
        for sample in range(16)
    ]
    return ["--series", written(folder / "series.csv", rows), "--campaigns", "1"]


@pytest.mark.parametrize(
    ("main", "arguments", "printed", "written"),
    [
        (accuracy.main, tables, ["made-a100", "Models of 2025"], ["clusters", "models_2026"]),
        (
            search_replay.main,
            grids,
            ["random", "ours_imported", "First choices"],
            ["overall", "own_stop"],
        ),
        (one_gpu.main, trials, ["calibrated on 5", "of 8 that ran"], ["methods"]),
        (knob_replay.main, series, ["% found", "1 systems, 20 knobs"], ["found_3", "starts"]),
    ],
    ids=["accuracy", "search_replay", "one_gpu", "knob_replay"],
)
def test_a_benchmark_prints_its_table_and_writes_its_document(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    main: Callable[[list[str]], int],
    arguments: Callable[[Path], list[str]],
    printed: list[str],
    written: list[str],
) -> None:
    out = tmp_path / "out.json"
    assert main([*arguments(tmp_path), "--json", str(out)]) == 0
    document: dict[str, Any] = json.loads(out.read_text(), parse_constant=pytest.fail)
    text = capsys.readouterr().out
    assert [part for part in printed if part not in text] == []
    assert [part for part in written if not document[part]] == []


def test_rows_of_2026_that_no_strategy_describes_are_counted(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert accuracy.main([*tables(tmp_path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())["models_2026"]
    assert (found["rows"], found["describable"], found["peaks"]) == (3, 2, 3)
    assert found["left_out"] == {"states or activations offloaded to the host": 1}


def test_every_row_is_written_with_its_prediction_or_a_reason(tmp_path: Path) -> None:
    out = tmp_path / "rows.csv"
    columns = [name for name in THROUGHPUT if name != "vocab_size"]
    timed = [*GRID, {**PLAIN, "num_layers": ""}, {**PLAIN, "gpu": "TPU v4"}]
    times = written(tmp_path / "times.csv", timed, columns)
    changes: tuple[Cells, ...] = ({}, {"memory_kind": "torch max reserved"}, {"status": "oom"})
    peaks = [{**PLAIN, **change} for change in changes]
    sizes = written(tmp_path / "sizes.csv", peaks)
    given = ["--throughput", times, "--memory", sizes, "--draws", "1", "--rows", str(out)]
    assert accuracy.main(given) == 0
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(timed) + len(peaks)
    reasons = [row["left_out"] for row in rows if not row["predicted"]]
    assert reasons == ["no shape or layout", "on a GPU whose data sheet is not known"]
    for row in rows:
        if row["predicted"]:
            assert float(row["low"]) < float(row["predicted"]) < float(row["high"])
            assert 0.0 <= float(row["fit_probability"]) <= 1.0
            assert float(row["allocated"]) < float(row["reserved"])
    kinds = ["measured", "torch max reserved", "measured"]
    assert [row["memory_kind"] for row in rows[-3:]] == kinds


def test_figures_of_knobs_have_five_names(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert knob_replay.main([*series(tmp_path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert list(found) == ["false_adoption", "found_1", "found_2", "found_3", "starts"]
    assert 23 <= found["starts"] < 120


def test_a_run_that_was_submitted_twice_counts_once(tmp_path: Path) -> None:
    systems = knob_replay.read_systems(Path(series(tmp_path)[1]))
    assert [len(medians) for medians in systems] == [4, 4]


def test_a_table_without_step_times_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = written(tmp_path / "times.csv", GRID)
    assert knob_replay.main(["--series", table]) == 2
    assert "no table of step times" in capsys.readouterr().err
