"""Golden peaks: how rows are read, which are left out, and what calibration learns from others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from autotune.cost_model.memory import last_stage_parts
from autotune.cost_model.strategies import GIB, Strategies, total
from search_spaces.program import USUAL_STATES
from tests.benchmarks.accuracy import memory_2026
from tests.benchmarks.accuracy.measurements import Cells, timed, written
from tests.benchmarks.accuracy.memory_2026 import GOLDEN, GoldenPeaks, golden, quantity
from tests.benchmarks.accuracy.tables import MEMORY, PublishedRow, is_of_2026

MIXTURE: Cells = {
    "config_id": "a",
    "gpu": "H100",
    "precision": "bf16",
    "attention_backend": "auto",
    "transformer_impl": "transformer_engine",
    "world_source": "recipe",
    "num_layers": 12,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_query_groups": 8,
    "head_dim": 64,
    "ffn_hidden_size": 2048,
    "seq_length": 1024,
    "vocab_size": 50257,
    "gated_mlp": 0,
    "tied_embeddings": 1,
    "num_experts": 8,
    "moe_top_k": 2,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_ffn_hidden_size": 0,
    "num_dense_layers": 0,
    "mtp_layers": 0,
    "mla": 0,
    **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "expert_parallel"), 2),
    **dict.fromkeys(("virtual_stages", "context_parallel", "expert_tensor_parallel"), 1),
    "sequence_parallel": 1,
    "micro_batch_size": 4,
    "world_size": 8,
    "global_batch_size": 32,
    "distributed_optimizer": 1,
    "hidden_dropout": 0.1,
    "cross_entropy_fusion": 0,
    "grad_reduce_bf16": 0,
    "mem_allocated_bytes": 5e8,
    "mem_max_early_bytes": 2e9,
}


def read(folder: Path, *rows: Cells) -> list[PublishedRow]:
    table = written(folder / "golden.csv", [MIXTURE | row for row in rows], GOLDEN)
    return golden([table])


def predicted(peaks: GoldenPeaks) -> np.ndarray:
    known = quantity()
    strategies = Strategies(peaks.columns, known.machine, known.prior)
    return np.asarray(total(last_stage_parts(strategies)) / GIB)


def test_repeats_count_once_and_excluded_rows_by_their_reason(tmp_path: Path) -> None:
    peaks = GoldenPeaks.of(
        read(
            tmp_path,
            {"mem_max_early_bytes": 2 * GIB},
            {"mem_max_early_bytes": 4 * GIB},
            {"mem_max_early_bytes": 3 * GIB},
            {"gpu": "A100"},
            {"excluded": "hybrid"},
            {"excluded": "offload"},
            {"mem_max_early_bytes": ""},
        )
    )
    assert peaks.gib[0] == 3.0
    assert len(peaks.gib) == 2
    assert peaks.left_out == {"hybrid": 1, "offload": 1, "no peak": 1}
    assert is_of_2026(tmp_path / "golden.csv")
    assert not is_of_2026(written(tmp_path / "memory.csv", [], MEMORY))


def test_a_guessed_world_is_the_one_whose_states_are_resident(tmp_path: Path) -> None:
    """Four times the guess: the moments and master weights of a rank are a quarter."""
    told = GoldenPeaks.of(read(tmp_path, {"world_size": 32}))
    states = total(
        {
            name: part
            for name, part in last_stage_parts(
                Strategies(told.columns, quantity().machine, quantity().prior)
            ).items()
            if name in ("parameters", "gradients", "optimizer", "experts")
        }
    )
    resident = {"world_source": "assumed", "mem_allocated_bytes": float(states[0])}
    guessed = GoldenPeaks.of(read(tmp_path, resident))
    believed = GoldenPeaks.of(read(tmp_path, resident | {"world_source": "recipe"}))
    assert guessed.columns["world_size"][0] == 32
    assert believed.columns["world_size"][0] == 8
    assert predicted(guessed)[0] == pytest.approx(predicted(told)[0])


def test_constants_are_learned_from_the_reference(tmp_path: Path) -> None:
    """Peaks of a program that keeps a quarter more of everything than is predicted."""
    layouts: list[Cells] = [
        {"config_id": f"{mbs} {tp} {pp}", "micro_batch_size": mbs, "tensor_parallel": tp}
        | {"pipeline_parallel": pp, "mem_max_early_bytes": GIB}
        for mbs in (1, 2, 4, 8)
        for tp in (1, 2)
        for pp in (1, 2)
    ]
    gib = predicted(GoldenPeaks.of(read(tmp_path, *layouts)))
    rows = read(
        tmp_path,
        *(
            layout | {"mem_max_early_bytes": 1.25 * GIB * size}
            for layout, size in zip(layouts, gib.tolist(), strict=True)
        ),
    )
    found = memory_2026.judge(rows[::2], rows[1::2], [])
    assert found.peaks == 8
    assert found.peak_mape_zero_shot == pytest.approx(0.2)
    assert found.peak_mape_calibrated is not None
    assert found.peak_mape_calibrated < 0.05
    assert found.false_oom is None
    assert memory_2026.judge(rows, [], []).peak_mape_calibrated is None


def test_what_ran_and_is_predicted_not_to_fit(tmp_path: Path) -> None:
    """A 22B model on two A100s of 80 GB with all its states on each, and one cut by eight."""
    rows = timed(
        tmp_path,
        {"num_gpus": 2, "tensor_parallel": 1, "pipeline_parallel": 1},
        {"tensor_parallel": 8, "pipeline_parallel": 2, "zero_stage": 1},
        {"status": "oom"},
        {"activation_checkpointing": ""},
    )
    found = memory_2026.judge([], [], rows)
    assert (found.ran, found.false_oom) == (2, 0.5)
    assert sum(found.ran_left_out.values()) == 2


def test_recipes_that_keep_gradients_in_16_bits(tmp_path: Path) -> None:
    recipe, deepseek, other = timed(
        tmp_path,
        {"framework": "Megatron-Bridge"},
        {"framework": "Megatron-Bridge", "model": "DeepSeekV3"},
        {"framework": "Megatron-LM"},
    )
    assert memory_2026.widths_of(recipe).gradient_bytes == 2.0
    assert memory_2026.widths_of(deepseek).moment_bytes == 2.0
    assert memory_2026.widths_of(other) == USUAL_STATES
