"""Commits of Megatron-DeepSpeed that cannot train what others can, told by their source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.frameworks.megatron_deepspeed.defects import defects_of, refusals
from search_spaces.catalog import load_model
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.frameworks.strategies import BASE

GPT = load_model("gpt-22b")
LLAMA = load_model("llama-3-70b")
GROUPED = replace(GPT, num_query_groups=8)

SIGNS = {
    "megatron/model/rotary_pos_embedding.py": "        rope = [base.cos(), base.sin()]\n",
    "megatron/model/transformer.py": "    each_hidden_size = mixed_x_layer.shape[-1] // 3\n",
    "megatron/core/tensor_parallel/layers.py": (
        "        return self.local_embeddings(position_ids - self.offset)\n"
    ),
}
LAST, WORKING = tuple(SIGNS), ("megatron/core/tensor_parallel/layers.py",)


def checkout(root: Path, *with_sign: str) -> Path:
    """A checkout that has the signs of a defect in these files, and sound ones else."""
    for file, sign in SIGNS.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(sign if file in with_sign else "import torch\n")
    return root


def refused(root: Path, transformer: Transformer, strategy: Strategy) -> list[str]:
    return [refusal.field for refusal in refusals(defects_of(root), transformer, strategy)]


@pytest.mark.parametrize(
    ("transformer", "changes", "last", "working"),
    [
        (GPT, {}, [], []),
        (LLAMA, {}, ["gated_mlp", "num_query_groups"], []),
        (GROUPED, {"zero_stage": 2, "pipeline_parallel": 1}, ["num_query_groups"], []),
        (GPT, {"flash_attention": False}, ["micro_batch_size"], []),
        (GPT, {"precision": "fp32"}, ["micro_batch_size"], []),
        (GPT, {"flash_attention": False, "micro_batch_size": 1}, [], []),
        (GPT, {"sequence_parallel": True}, ["sequence_parallel"], ["sequence_parallel"]),
        (LLAMA, {"sequence_parallel": True}, ["gated_mlp", "num_query_groups"], []),
    ],
)
def test_what_the_last_commit_and_the_working_one_cannot_train(
    tmp_path: Path,
    transformer: Transformer,
    changes: dict[str, object],
    last: list[str],
    working: list[str],
) -> None:
    strategy = replace(BASE, **changes)  # type: ignore[arg-type]  # typed by the dataclass itself
    assert refused(checkout(tmp_path / "last", *LAST), transformer, strategy) == last
    assert refused(checkout(tmp_path / "working", *WORKING), transformer, strategy) == working


def test_the_commit_that_works_is_named(tmp_path: Path) -> None:
    defects = defects_of(checkout(tmp_path, *LAST))
    gated, grouped = refusals(defects, LLAMA, BASE)
    assert "6acc370a" in gated.valid
    assert "6acc370a" in grouped.valid
    assert "megatron/model/rotary_pos_embedding.py" in gated.reason


def test_a_checkout_that_only_the_nodes_see_is_believed(tmp_path: Path) -> None:
    assert defects_of(tmp_path / "inside a container") == ()
