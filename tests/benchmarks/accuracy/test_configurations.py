"""Rows as columns of the cost model: each rule for what a row leaves out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.cost_model.columns import Columns
from search_spaces.catalog import load_model
from tests.benchmarks.accuracy.configurations import columns_of, no_zero, usual_zero, zero_of_peaks
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import Cells, cells, remembered, strategies, timed


def columns(folder: Path, *rows: Cells) -> Columns:
    read = timed(folder, *rows)
    return columns_of(read, Facts.of(read), zero_stage=no_zero)


def one(folder: Path, **changed: object) -> dict[str, float]:
    made = columns(folder, changed)
    return {name: float(np.ravel(values)[0]) for name, values in made.values.items()}


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


@pytest.mark.parametrize(
    ("framework", "of_time", "of_memory"),
    [
        ("other", [0, 1, 2, 3], [0, 1, 2, 3]),
        ("DeepSpeed (ZeRO (old branch))", [0, 3, 3, 3], [0, 3, 3, 3]),
        ("InternEvo", [0, 1, 2, 3], [0, 3, 3, 3]),
    ],
)
@pytest.mark.parametrize("status", ["ok", "oom"])
def test_the_framework_decides_what_zero_divides_and_no_outcome(
    tmp_path: Path, framework: str, of_time: list[float], of_memory: list[float], status: str
) -> None:
    rows: list[Cells] = [
        {"framework": framework, "zero_stage": stage, "status": status} for stage in range(4)
    ]
    assert columns(tmp_path, *rows)["zero_stage"].tolist() == of_time
    read = timed(tmp_path, *rows)
    of_peaks = columns_of(read, Facts.of(read), zero_stage=zero_of_peaks)
    assert of_peaks["zero_stage"].tolist() == of_memory


def test_what_is_not_said_is_one_or_off(tmp_path: Path) -> None:
    row = one(tmp_path, micro_batch_size="", flash_attention="", activation_checkpointing="")
    assert row["micro_batch_size"] == row["virtual_stages"] == row["context_parallel"] == 1
    assert row["flash_attention"] == row["sequence_parallel"] == 0
    assert row["full_checkpointing"] == row["selective_checkpointing"] == 0


def test_precision_and_checkpointing(tmp_path: Path) -> None:
    row = one(tmp_path, precision="fp8", activation_checkpointing="selective")
    assert (row["fp8"], row["fp32"]) == (1, 0)
    assert (row["full_checkpointing"], row["selective_checkpointing"]) == (0, 1)
    assert row["operation_checkpointing"] == 0


def test_selective_is_by_operation_for_torchtitan(tmp_path: Path) -> None:
    row = one(tmp_path, framework="torchtitan", activation_checkpointing="selective")
    assert (row["operation_checkpointing"], row["selective_checkpointing"]) == (1, 0)
    row = one(tmp_path, framework="torchtitan", activation_checkpointing="full")
    assert (row["operation_checkpointing"], row["full_checkpointing"]) == (0, 1)


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({"global_batch_size": 64, "gradient_accumulation_steps": ""}, 16),
        ({"global_batch_size": 66, "gradient_accumulation_steps": ""}, 16),
        ({"global_batch_size": 1, "gradient_accumulation_steps": ""}, 1),
        ({"global_batch_size": 64, "gradient_accumulation_steps": 3}, 16),
        ({"global_batch_size": "", "gradient_accumulation_steps": 3}, 3),
        ({"global_batch_size": "", "gradient_accumulation_steps": ""}, 8),
    ],
)
def test_accumulation_is_what_the_batch_asks_for(
    tmp_path: Path, changed: Cells, steps: int
) -> None:
    """Two replicas of two stages and micro-batches of 2."""
    assert one(tmp_path, **changed)["gradient_accumulation_steps"] == steps


def test_replicas_are_what_is_left_of_the_gpus(tmp_path: Path) -> None:
    row = one(tmp_path, data_parallel="", num_gpus=32, context_parallel=2)
    assert (row["data_parallel"], row["world_size"]) == (2, 32)
    assert one(tmp_path, num_gpus="", context_parallel=2)["world_size"] == 32


def test_zero_divides_over_context_parallel_gpus_too(tmp_path: Path) -> None:
    assert one(tmp_path, context_parallel=2, num_gpus=32)["zero_shard_gpus"] == 4
    assert one(tmp_path, zero_shard_gpus=8)["zero_shard_gpus"] == 8


def test_heads_groups_and_widths_as_usual(tmp_path: Path) -> None:
    unsaid: Cells = {"num_attention_heads": "", "ffn_hidden_size": "", "vocab_size": ""}
    plain = one(tmp_path, **unsaid)
    assert (plain["num_attention_heads"], plain["num_query_groups"]) == (48, 48)
    assert (plain["ffn_hidden_size"], plain["vocab_size"]) == (4 * 6144, 51200)
    assert (plain["gated_mlp"], plain["tied_embeddings"]) == (0, 1)
    gated = one(tmp_path, gated_mlp=1, hidden_size=4096, **unsaid)
    assert gated["ffn_hidden_size"] == 11008
    assert (gated["gated_mlp"], gated["tied_embeddings"]) == (1, 0)


@pytest.mark.parametrize(
    ("model", "gated"), [("InternLM-7B", 1), ("Llama2-13B", 1), ("Qwen 7B", 1), ("GPT 22B", 0)]
)
def test_a_family_is_known_to_be_gated(tmp_path: Path, model: str, gated: float) -> None:
    assert one(tmp_path, model=model, gated_mlp="")["gated_mlp"] == gated
    assert one(tmp_path, model=model, gated_mlp=0)["gated_mlp"] == 0


def test_the_other_table_says_what_one_leaves_out(tmp_path: Path) -> None:
    """Of the same model on the same cluster, and a vocabulary of another model there."""
    times = timed(tmp_path, {"model": "A", "gated_mlp": 1, "num_attention_heads": 32})
    unsaid: Cells = {"num_attention_heads": "", "vocab_size": ""}
    sizes = remembered(
        tmp_path,
        {"model": "A", **unsaid},
        {"model": "B", **unsaid},
        {"model": "A", "cluster": "another", **unsaid},
    )
    made = columns_of(sizes, Facts.of([*times, *sizes]), zero_stage=usual_zero)
    assert list(made["num_attention_heads"]) == [32, 48, 48]
    assert list(made["gated_mlp"]) == [1, 0, 0]
    assert list(made["vocab_size"]) == [50257, 50257, 51200]


def test_deepspeed_divides_the_optimizer_where_memory_is_asked(tmp_path: Path) -> None:
    rows = remembered(
        tmp_path,
        {"framework": "Megatron-DeepSpeed"},
        {"framework": "Megatron-DeepSpeed", "zero_stage": 0},
        {"framework": "Megatron-LM"},
    )
    facts = Facts.of(rows)
    assert list(columns_of(rows, facts, zero_stage=usual_zero)["zero_stage"]) == [1, 0, 0]
    assert list(columns_of(rows, facts, zero_stage=no_zero)["zero_stage"]) == [0, 0, 0]


@pytest.mark.parametrize(
    ("framework", "pipeline", "expected"),
    [("torchtitan", 2, (1, 8)), ("torchtitan", 1, (8, 1)), ("Megatron-LM", 2, (8, 1))],
)
def test_a_pipeline_of_torchtitan_cuts_its_local_batch(
    tmp_path: Path, framework: str, pipeline: int, expected: tuple[int, int]
) -> None:
    layout: Cells = {"pipeline_parallel": pipeline, "data_parallel": 4, "tensor_parallel": 1}
    batch: Cells = {"micro_batch_size": 8, "global_batch_size": 32}
    row = one(tmp_path, framework=framework, **layout, **batch)
    assert (row["micro_batch_size"], row["gradient_accumulation_steps"]) == expected


def test_what_the_name_of_a_kernel_says(tmp_path: Path) -> None:
    names = ("torch", "flash_attentionv1.0.8", "flash_attention2", "flash_attention2 + RMS kernel")
    rows: list[Cells] = [{"attention_kernel": name} for name in names]
    made = columns(tmp_path, *rows)
    assert list(made["unfused_softmax"]) == [1, 0, 0, 0]
    assert list(made["flash_1"]) == [0, 1, 0, 0]
    assert list(made["fused_norm"]) == [0, 0, 0, 1]
    without = columns(tmp_path, *rows[:3])
    assert list(without["fused_norm"]) == [1, 1, 1]


@pytest.mark.parametrize(
    ("said", "column", "value"),
    [
        ({"dispatcher": "alltoall"}, "waits_for_counts", 1.0),
        ({"dispatcher": ""}, "waits_for_counts", 0.5),
        ({"dispatcher": "hybridep"}, "waits_for_counts", 0.0),
        ({"routing": "force-balanced, dropless"}, "uneven_routing", 0.0),
        ({"routing": "not stated"}, "uneven_routing", 1.0),
        ({"routing": "natural"}, "uneven_routing", 2.0),
    ],
)
def test_how_tokens_are_sent_to_experts(
    tmp_path: Path, said: dict[str, str], column: str, value: float
) -> None:
    assert one(tmp_path, **said)[column] == value
