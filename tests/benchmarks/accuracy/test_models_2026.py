"""Step times of models of 2025 and 2026, on tables written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.accuracy import models_2026
from tests.benchmarks.accuracy.configurations import no_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.measurements import Cells, written
from tests.benchmarks.accuracy.stacks import stacks_of
from tests.benchmarks.accuracy.tables import OPTIONAL, THROUGHPUT, PublishedRow, is_of_2026, read

QWEN: Cells = {
    "cluster": "bridge-gb200-26.04",
    "framework": "Megatron-Bridge",
    "gpu": "GB200",
    "model": "Qwen3-30B-A3B",
    "status": "ok",
    "precision": "mxfp8",
    "activation_checkpointing": "none",
    "attention_kernel": "cuDNN/TE fused",
    "num_gpus": 16,
    "gpus_per_node": 4,
    "nvlink_domain": 72,
    "num_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_query_groups": 4,
    "head_dim": 128,
    "ffn_hidden_size": 6144,
    "gated_mlp": 1,
    "seq_length": 4096,
    "vocab_size": 151936,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "expert_parallel": 16,
    "micro_batch_size": 4,
    "global_batch_size": 512,
    "zero_stage": 1,
    "flash_attention": 1,
    "num_experts": 128,
    "moe_top_k": 8,
    "moe_ffn_hidden_size": 768,
    "iteration_time_s": 6.0,
    "routing": "force-balanced, dropless",
}
NOT_SAID: list[tuple[Cells, str]] = [
    ({"offload": 1}, "states or activations offloaded to the host"),
    ({"routing": "token drop (capacity factor)"}, "tokens above an expert's capacity dropped"),
    ({"fp8_attention": 1}, "attention in 8 bits"),
    ({"recompute_num_layers": 5}, "some layers recomputed, others not"),
    ({"recompute_modules": "router"}, "a module recomputed that no strategy names"),
    ({"global_batch_size": 4}, "fewer samples than replicas"),
]


def rows_of(folder: Path, *changes: Cells) -> list[PublishedRow]:
    path = folder / "throughput.csv"
    written(path, [QWEN | change for change in changes], (*THROUGHPUT, *OPTIONAL))
    return read(path, THROUGHPUT)


def test_a_table_is_known_by_its_header(tmp_path: Path) -> None:
    assert is_of_2026(written(tmp_path / "new.csv", [], (*THROUGHPUT, *OPTIONAL)))
    assert not is_of_2026(written(tmp_path / "old.csv", [], THROUGHPUT))


def test_rows_that_no_strategy_describes_count_in_all_rows_alone(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, {}, *[change for change, _ in NOT_SAID], {"status": "oom"})
    found = models_2026.judge(rows, draws=1)
    reasons = [reason for _, reason in NOT_SAID]
    assert (found.rows, found.describable) == (1 + len(NOT_SAID), 1)
    assert found.left_out == dict.fromkeys(reasons, 1) | {"out of memory or not ended": 1}
    assert found.zero_shot_mape_describable is not None
    assert found.zero_shot_mape_all != found.zero_shot_mape_describable
    assert found.mape_after_5 is found.leave_one_model_out_mape is None


def test_calibration_learns_the_level_of_a_stack(tmp_path: Path) -> None:
    """Seven layouts whose times are all twice those that are predicted."""
    layouts = [(1, 8, 1), (2, 8, 1), (4, 8, 1), (8, 8, 1), (4, 16, 1), (8, 16, 1), (4, 16, 2)]
    changes: list[Cells] = [
        {"micro_batch_size": size, "expert_parallel": ep, "context_parallel": cut}
        for size, ep, cut in layouts
    ]
    rows = rows_of(tmp_path, *changes)
    [stack] = stacks_of(rows, Facts.of(rows), zero_stage=no_zero)
    predicted = models_2026.predicted_s(stack)
    slow = [
        change | {"iteration_time_s": 2.0 * seconds}
        for change, seconds in zip(changes, predicted.tolist(), strict=True)
    ]
    found = models_2026.judge(rows_of(tmp_path, *slow), draws=2)
    assert found.zero_shot_mape_describable == pytest.approx(0.5, abs=1e-6)
    assert found.mape_after_5 is not None
    assert found.mape_after_5 < 0.2
    assert found.in_stack_mape is not None
    assert found.in_stack_mape < 0.2
    assert found.context_parallel_mape is not None
    assert found.leave_one_model_out_mape is None
