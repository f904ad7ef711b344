"""First choices on grids, on tables written by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.replay.grids import choices, first_regret, read_grids

MIXTRAL: dict[str, Any] = {
    "grid_id": "mixtral",
    "gpu": "H100",
    "num_gpus": 64,
    "gpus_per_node": 8,
    "seq_length": 4096,
    "global_batch_size": 256,
    "precision": "bf16",
    "status": "ok",
    "num_layers": 16,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "vocab_size": 32000,
    "gated_mlp": 1,
    "num_experts": 8,
    "moe_top_k": 2,
    "moe_ffn_hidden_size": 14336,
    "zero_stage": 1,
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "expert_parallel": 8,
    "expert_tensor_parallel": 1,
}
NARROW: dict[str, Any] = {"tensor_parallel": 8, "expert_parallel": 1, "expert_tensor_parallel": 8}


def grid(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "grids.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        columns = dict.fromkeys([*MIXTRAL, "mfu", "notes"])
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows([MIXTRAL | row for row in rows])
    return path


@pytest.mark.parametrize(
    ("folded", "cut", "regret"), [(0.5, 0.1, 0.0), (0.45, 0.5, 0.1), (None, 0.5, 1.0)]
)
def test_the_regret_of_a_first_choice(
    folded: float | None, cut: float, regret: float, tmp_path: Path
) -> None:
    """Whole experts apart are predicted to be much faster than cut ones."""
    ran = {"mfu": folded} if folded else {"status": "oom"}
    rows = read_grids([grid(tmp_path, ran, NARROW | {"mfu": cut})])
    assert first_regret(rows) == pytest.approx(regret)


def test_what_a_description_does_not_tell_apart_is_one_layout(tmp_path: Path) -> None:
    rows = read_grids([grid(tmp_path, {"mfu": 0.2}, {"mfu": 0.4})])
    assert first_regret(rows) is None
    rows = read_grids([grid(tmp_path, {"mfu": 0.2}, {"mfu": 0.4}, NARROW | {"mfu": 0.3})])
    assert first_regret(rows) == 0.0


def test_grids_are_counted(tmp_path: Path) -> None:
    other = {"grid_id": "other"}
    rows = [
        {"mfu": 0.5},
        NARROW | {"mfu": 0.2},
        other | {"mfu": 0.2},
        other | NARROW | {"mfu": 0.4},
    ]
    found = choices(read_grids([grid(tmp_path, *rows)]))
    assert (found.grids, found.within_5_percent) == (2, 1)
    assert found.mean_regret_first == pytest.approx(0.25)


def test_virtual_stages_that_are_not_printed_have_a_layer_each(tmp_path: Path) -> None:
    [row] = read_grids([grid(tmp_path, {"pipeline_parallel": 4, "notes": "MBS, VPP not given"})])
    assert row.figures["virtual_stages"] == 4.0
