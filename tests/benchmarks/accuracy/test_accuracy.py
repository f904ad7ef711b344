"""The whole command on tables of a machine that we made up, and how rows are read."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.cost_model.columns import Columns
from search_spaces.catalog import load_machine, load_model
from tests.benchmarks.accuracy import memory, throughput
from tests.benchmarks.accuracy.__main__ import main
from tests.benchmarks.accuracy.configurations import columns_of, no_zero, zero_of_peaks
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import machine_of, unknown_gpu
from tests.benchmarks.accuracy.measurements import (
    PLAIN,
    Cells,
    cells,
    measured,
    remembered,
    strategies,
    timed,
    written,
)
from tests.benchmarks.accuracy.memory import area_under_curve, best_threshold
from tests.benchmarks.accuracy.memory_2026 import GOLDEN
from tests.benchmarks.accuracy.stacks import LEAST_ROWS, contradictions, independent, stacks_of
from tests.benchmarks.accuracy.tables import MEMORY, OPTIONAL, THROUGHPUT
from tests.benchmarks.accuracy.throughput import mape, rank

MIXTURE: Cells = {
    **PLAIN,
    "framework": "Megatron-Bridge",
    "gpu": "GB200",
    "precision": "mxfp8",
    "nvlink_domain": 72,
    "expert_parallel": 8,
    "num_experts": 128,
    "moe_top_k": 8,
    "moe_ffn_hidden_size": 768,
    "routing": "force-balanced, dropless",
}
PEAK: Cells = {
    **dict.fromkeys(GOLDEN[9:], 1),
    **{name: value for name, value in PLAIN.items() if name in GOLDEN},
    "world_source": "recipe",
    "num_query_groups": 64,
    "world_size": 16,
    "head_dim": 96,
    "mem_allocated_bytes": 5e9,
    "num_experts": 8,
    "moe_ffn_hidden_size": 2048,
    **dict.fromkeys(("moe_shared_ffn_hidden_size", "num_dense_layers", "mtp_layers", "mla"), 0),
}


def tables(folder: Path, *, times: list[Cells], sizes: list[Cells]) -> list[str]:
    """Arguments that name them."""
    throughput = written(folder / "throughput.csv", times, THROUGHPUT)
    memory = written(folder / "memory.csv", sizes, MEMORY)
    return ["--throughput", str(throughput), "--memory", str(memory)]


def document(folder: Path, *arguments: str, draws: int) -> tuple[dict[str, Any], str]:
    """Return the figures and what is printed."""
    out = folder / "out.json"
    with redirect_stdout(StringIO()) as printed:
        assert main([*arguments, "--draws", str(draws), "--json", str(out)]) == 0
    return json.loads(out.read_text(), parse_constant=pytest.fail), printed.getvalue()


def test_the_command_on_a_machine_that_is_like_the_model(tmp_path: Path) -> None:
    """Two models in one stack, and one in another, too small for 10 trials."""
    one, other = measured("gpt-1.4b", count=20), measured("llama-2-7b", count=20)
    alone: list[Cells] = [{**row, "cluster": "small-a100"} for row in one[0][:12]]
    given = tables(tmp_path, times=[*one[0], *other[0], *alone], sizes=[*one[1], *other[1]])
    figures, printed = document(tmp_path, *given, draws=2)
    assert list(figures["clusters"]) == ["made-a100", "small-a100"]
    stack, memory = figures["clusters"]["made-a100"], figures["memory"]
    small = figures["clusters"]["small-a100"]
    assert stack["rows"] == 40
    assert 0.005 < stack["mape_after"]["5"] < 0.06
    assert stack["mape_after"]["20"] < stack["zero_shot_mape"]
    assert 0.7 < stack["coverage_80"] <= 1.0
    assert 0.7 < stack["kendall_tau"] <= 1.0
    assert stack["top1_regret_after_5"] < 0.05
    assert stack["leave_one_model_out_mape"] < 0.2
    assert 0.95 < memory["auc"] <= 1.0
    assert max(memory["condemned"], memory["missed"]) < 0.15
    assert memory["peak_mape_after_5"] < min(0.06, memory["peak_mape_zero_shot"])
    assert figures["speed"]["strategies_per_second"] > 10_000
    both = [each["mape_after"]["5"] for each in (stack, small)]
    assert figures["overall"]["mape_after"]["5"] == pytest.approx(sum(both) / 2)
    nothing = (small["mape_after"]["10"], small["leave_one_model_out_mape"], small["noise_floor"])
    assert set(nothing) == {None}
    error = f"{100 * stack['mape_after']['5']:.1f} %"
    for part in ("made-a100", "small-a100", "overall", "aimed at", "Calculon", "vTrain", error):
        assert part in printed


def test_tables_of_2026_are_judged_apart(tmp_path: Path) -> None:
    """Calibration learns from eight layouts that each take as long, and hold as much."""
    given = tables(tmp_path, times=[], sizes=[])
    layouts: list[Cells] = [
        {"micro_batch_size": mbs, "context_parallel": cp, "global_batch_size": 512}
        for mbs in (1, 2, 4, 8)
        for cp in (1, 2)
    ]
    rows = [*[MIXTURE | layout for layout in layouts], MIXTURE | {"offload": 1}]
    newer = written(tmp_path / "new.csv", rows, (*THROUGHPUT, *OPTIONAL))
    peaks = [
        PEAK | layout | {"config_id": str(number), "mem_max_early_bytes": 3e10 + 1e9 * number}
        for number, layout in enumerate(layouts)
    ]
    peaks.append(PEAK | {"excluded": "hybrid"})
    golden = str(written(tmp_path / "golden.csv", peaks, GOLDEN))
    given[2:2] = [str(newer)]
    figures, printed = document(tmp_path, *given, golden, "--memory-reference", golden, draws=1)
    found = figures["models_2026"]
    assert (found["rows"], found["describable"], found["peaks"], found["ran"]) == (9, 8, 8, 8)
    assert found["left_out"] == {"states or activations offloaded to the host": 1}
    assert found["peaks_left_out"] == {"hybrid": 1}
    assert found["peak_mape_calibrated"] < found["peak_mape_zero_shot"]
    assert found["mape_after_5"] < found["zero_shot_mape_describable"]
    assert found["in_stack_mape"] is not None
    assert found["context_parallel_mape"] is not None
    assert found["leave_one_model_out_mape"] is None
    assert "Models of 2025 and 2026" in printed
    assert figures["clusters"] == {}
    after = figures["overall"].pop("mape_after")
    assert figures["overall"].pop("rows") == 0
    assert set(figures["overall"].values()) == set(after.values()) == {None}


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"num_layers": "many"}, "line 2: num_layers='many' is no number"),
        ({"hidden_size": -1}, "hidden_size='-1' must be a number above 0"),
    ],
)
def test_a_bad_cell_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: Cells, told: str
) -> None:
    assert main(tables(tmp_path, times=[{**PLAIN, **broken}], sizes=[])) == 2
    printed = capsys.readouterr().err.strip().splitlines()[-1]
    assert printed.startswith("accuracy: ")
    assert told in printed


def test_files_and_figures_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = tables(tmp_path, times=[], sizes=[])
    assert main([*given, "--json", str(tmp_path / "none" / "a.json")]) == 2
    assert "cannot be written" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*given, "--draws=0"])
    assert "is no whole number from 1 on" in capsys.readouterr().err
    written(tmp_path / "memory.csv", [], MEMORY[1:])
    assert main(given) == 2
    assert "1 column is missing: cluster" in capsys.readouterr().err
    (tmp_path / "memory.csv").unlink()
    assert main(given) == 2
    assert capsys.readouterr().err.count("\n") == 1


# --- how rows are read ---


def columns(folder: Path, *rows: Cells) -> Columns:
    read = timed(folder, *rows)
    return columns_of(read, Facts.of(read), zero_stage=no_zero)


@pytest.mark.parametrize("name", ["gpt-1.4b", "llama-2-7b"])
def test_a_row_that_says_all_is_the_strategy_that_it_was(tmp_path: Path, name: str) -> None:
    model = load_model(name)
    lattice = strategies(model, count=40)
    read = columns(tmp_path, *(cells(model, lattice, row) for row in range(len(lattice))))
    original = Columns.of(model, lattice)
    for column in original.values:
        np.testing.assert_array_equal(
            np.broadcast_to(read[column], 40), np.broadcast_to(original[column], 40), err_msg=column
        )


UNSAID: Cells = dict.fromkeys(("num_attention_heads", "ffn_hidden_size", "vocab_size"), "")
TORCHTITAN: Cells = {"framework": "torchtitan", "tensor_parallel": 1, "data_parallel": 4}


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ({"micro_batch_size": ""}, {"micro_batch_size": 1, "virtual_stages": 1}),
        ({"activation_checkpointing": ""}, {"full_checkpointing": 0, "flash_attention": 0}),
        ({"precision": "fp8"}, {"fp8": 1, "fp32": 0}),
        ({"gradient_accumulation_steps": 3}, {"gradient_accumulation_steps": 16}),
        ({"global_batch_size": 1}, {"gradient_accumulation_steps": 1}),
        ({"global_batch_size": ""}, {"gradient_accumulation_steps": 8}),
        (
            {"data_parallel": "", "num_gpus": 32, "context_parallel": 2},
            {"data_parallel": 2, "world_size": 32, "zero_shard_gpus": 4},
        ),
        ({"num_gpus": "", "context_parallel": 2}, {"world_size": 32}),
        ({"zero_shard_gpus": 8}, {"zero_shard_gpus": 8}),
        (UNSAID, {"num_query_groups": 48, "ffn_hidden_size": 4 * 6144, "vocab_size": 51200}),
        (
            UNSAID | {"gated_mlp": 1, "hidden_size": 4096},
            {"ffn_hidden_size": 11008, "gated_mlp": 1, "tied_embeddings": 0},
        ),
        ({"model": "InternLM-7B", "gated_mlp": ""}, {"gated_mlp": 1}),
        (
            TORCHTITAN | {"micro_batch_size": 8, "global_batch_size": 32},
            {"micro_batch_size": 1, "gradient_accumulation_steps": 8},
        ),
        (
            TORCHTITAN | {"activation_checkpointing": "selective"},
            {"operation_checkpointing": 1, "selective_checkpointing": 0},
        ),
        ({"attention_kernel": "torch"}, {"unfused_softmax": 1, "fused_norm": 1}),
        ({"attention_kernel": "flash_attentionv1.0.8"}, {"flash_1": 1}),
        ({"dispatcher": ""}, {"waits_for_counts": 0.5}),
        ({"routing": "natural"}, {"uneven_routing": 2.0}),
    ],
)
def test_what_a_row_says_and_leaves_out(tmp_path: Path, said: Cells, read: dict[str, Any]) -> None:
    made = columns(tmp_path, said)
    assert {name: float(np.ravel(made[name])[0]) for name in read} == read


@pytest.mark.parametrize(
    ("framework", "of_time", "of_memory"),
    [
        ("other", [0, 0, 1, 2, 3], [0, 0, 1, 2, 3]),
        ("Megatron-DeepSpeed", [0, 0, 1, 2, 3], [1, 0, 1, 2, 3]),
        ("DeepSpeed (ZeRO (old branch))", [0, 0, 3, 3, 3], [1, 0, 3, 3, 3]),
        ("InternEvo", [0, 0, 1, 2, 3], [0, 0, 3, 3, 3]),
    ],
)
def test_the_framework_decides_what_zero_divides(
    tmp_path: Path, framework: str, of_time: list[float], of_memory: list[float]
) -> None:
    rows: list[Cells] = [{"framework": framework, "zero_stage": n} for n in ("", 0, 1, 2, 3)]
    assert columns(tmp_path, *rows)["zero_stage"].tolist() == of_time
    read = timed(tmp_path, *rows)
    assert (
        columns_of(read, Facts.of(read), zero_stage=zero_of_peaks)["zero_stage"].tolist()
        == of_memory
    )


def test_other_rows_say_what_one_leaves_out(tmp_path: Path) -> None:
    """Of the same model on the same cluster, and a vocabulary of another model there."""
    made = columns(
        tmp_path,
        {"model": "A", "gated_mlp": 1, "num_attention_heads": 32},
        {"model": "A", **UNSAID},
        {"model": "B", **UNSAID},
        {"model": "A", "cluster": "another", **UNSAID},
    )
    assert list(made["num_attention_heads"]) == [32, 32, 48, 48]
    assert list(made["vocab_size"]) == [50257, 50257, 50257, 51200]


def test_machines_by_the_names_of_clusters_and_gpus(tmp_path: Path) -> None:
    """Links are those of a catalog machine with the same GPU, or of a known cluster."""
    *known, unknown = timed(
        tmp_path,
        {"cluster": "polaris-a100", "gpu": "A100-40GB", "gpus_per_node": ""},
        {"cluster": "polaris-h100", "gpu": "H100-96GB"},
        {"cluster": "vtrain-a100", "gpu": "A100"},
        {"cluster": "anyone-v100", "gpu": "V100-32GB"},
        {"gpu": "TPU v4"},
    )
    machines = [machine_of(row) for row in known]
    polaris = load_machine("polaris").inter_node_gb_per_s
    assert [each.inter_node_gb_per_s for each in machines] == [polaris, 50, 12.5, 12.5]
    assert [each.gpus_per_node for each in machines] == [4, 8, 8, 8]
    assert machines[1].memory_bandwidth_gb_per_s == 2400
    assert unknown_gpu(unknown)


# --- which rows count ---


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"gpu": "TPU v4"}, "on a GPU whose data sheet is not known"),
        ({"num_experts": 128}, "mixture of experts of unknown widths"),
        ({"status": "oom"}, "out of memory or not ended"),
        ({"iteration_time_s": ""}, "no iteration time"),
        ({"framework": "ZeRO-Offload"}, "offload to the host, not covered"),
        ({"num_layers": ""}, "no shape or layout"),
        ({"seq_length": "", "model": "B"}, "no shape or layout"),
    ],
)
def test_times_that_cannot_be_judged_are_counted(
    tmp_path: Path, changed: Cells, reason: str
) -> None:
    rows = timed(tmp_path, *[dict[str, object]()] * LEAST_ROWS, changed)
    stacks, left_out = throughput.stacks(rows, Facts.of(rows))
    assert [len(stack) for stack in stacks.values()] == [LEAST_ROWS]
    assert +left_out == {reason: 1}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"memory_kind": "paper-calculated"}, "calculated, not measured"),
        ({"status": "running"}, "neither fitted nor failed"),
        ({"micro_batch_size": "", "seq_length": ""}, "no shape, layout or activations"),
    ],
)
def test_peaks_that_were_not_measured_are_counted(
    tmp_path: Path, changed: Cells, reason: str
) -> None:
    rows = remembered(tmp_path, {}, {"status": "oom"}, {"status": "fits"}, changed)
    stacks, left_out = memory.stacks(rows, Facts.of(rows))
    assert [len(stack) for stack in stacks.values()] == [3]
    assert +left_out == {reason: 1}


def test_exactly_linear_rows_of_one_node_count_once(tmp_path: Path) -> None:
    """One series off its line shows that the stack was measured."""

    def line(*steps: int, bent: float = 0.0, **others: object) -> list[Cells]:
        node: Cells = {"num_gpus": 8, "data_parallel": 1, "global_batch_size": "", **others}
        times = [0.3 + 0.7 * n for n in steps]
        times[-1] *= 1.0 + bent
        return [
            {**node, "gradient_accumulation_steps": n, "iteration_time_s": seconds}
            for n, seconds in zip(steps, times, strict=True)
        ]

    def counted(*rows: Cells) -> list[float]:
        kept = independent(timed(tmp_path, *rows))
        return [row.figures["gradient_accumulation_steps"] for row in kept]

    assert counted(*line(8, 2, 4, 16, 32)) == [8]
    assert counted(*line(2, 4)) == [2, 4]
    assert counted(*line(2, 4, 8), *line(1, 2, 4, bent=1e-4, zero_stage=1)) == [2, 4, 8, 1, 2, 4]
    assert counted(*line(2, 4, 8, num_gpus=16, data_parallel=2)) == [2, 4, 8]


# --- figures ---


def test_errors_and_ranks() -> None:
    assert mape(np.log([1.0, 2.0, 4.0]), np.log([1.1, 1.8, 4.0])) == pytest.approx(0.2 / 3)
    times, predicted = np.log([4.0, 9.0, 5.0, 7.0]), np.log([1.0, 1.0, 2.0, 3.0])
    tau, regret = rank(times, predicted, [np.array([0, 1]), np.array([2]), np.array([3])])
    assert (tau, regret) == pytest.approx((1 / 3, 1 - 5 / 6))
    fitted = np.array([True, True, False, False])
    assert area_under_curve(fitted, np.array([0.9, 0.2, 0.3, 0.1])) == 0.75
    assert best_threshold(fitted, np.array([0.9, 0.4, 0.2, 0.1])) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("failed", "fitted", "wrong"),
    [
        ({"micro_batch_size": 2}, {"micro_batch_size": 4}, 1),
        ({"activation_checkpointing": "full"}, {"activation_checkpointing": "none"}, 1),
        ({"flash_attention": 1}, {"flash_attention": 0}, 1),
        ({"micro_batch_size": 4}, {"micro_batch_size": 2}, 0),
        ({"micro_batch_size": 2}, {"micro_batch_size": 4, "tensor_parallel": 2}, 0),
        (
            {"micro_batch_size": 2, "activation_checkpointing": "none"},
            {"micro_batch_size": 4, "activation_checkpointing": "full"},
            0,
        ),
    ],
)
def test_labels_contradict_each_other(
    tmp_path: Path, failed: Cells, fitted: Cells, wrong: int
) -> None:
    rows = remembered(tmp_path, {**failed, "status": "oom"}, {**fitted, "status": "ok"})
    [stack] = stacks_of(rows, Facts.of(rows), zero_stage=zero_of_peaks)
    assert contradictions(stack, np.array([True, False])) == wrong
