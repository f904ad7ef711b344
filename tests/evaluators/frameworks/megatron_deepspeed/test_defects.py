"""Commits of Megatron-DeepSpeed that cannot train what others can, told by their source."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.frameworks.megatron_deepspeed.checkout import DEFECTS, defects_of, refusals
from search_spaces.catalog import load_machine, load_model
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.evaluators.frameworks.strategies import BASE

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
LLAMA = load_model("llama-3-70b")
GROUPED = replace(GPT, num_query_groups=8)

ROTARY = "        rope = [base.cos(), base.sin()]\n"
THIRDS = "    each_hidden_size = mixed_x_layer.shape[-1] // 3\n"
EXPANDED = "            return hidden_states.expand(slen, batch, n_rep, head_dim)\n"
POSITIONS = "        return self.local_embeddings(position_ids - self.offset)\n"
NORM = "    from torch.nn import LayerNorm\n"
SIGNS = {
    "megatron/model/rotary_pos_embedding.py": (ROTARY,),
    "megatron/model/transformer.py": (THIRDS, EXPANDED),
    "megatron/core/tensor_parallel/layers.py": (POSITIONS,),
    "megatron/model/__init__.py": (NORM,),
}
LAST, WORKING = (ROTARY, THIRDS, EXPANDED, POSITIONS), (EXPANDED, POSITIONS, NORM)


def checkout(root: Path, *signs: str) -> str:
    """A checkout with these signs of defects, each in its file."""
    for file, lines in SIGNS.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("".join(["import torch\n", *(s for s in lines if s in signs)]))
    return str(root)


def refused(
    root: str, transformer: Transformer, strategy: Strategy, machine: Machine = FRONTIER
) -> list[str]:
    return [each.field for each in refusals(defects_of(root), transformer, strategy, machine)]


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
        (
            LLAMA,
            {"tensor_parallel": 8, "flash_attention": False},
            ["gated_mlp", "num_query_groups", "micro_batch_size", "micro_batch_size"],
            ["micro_batch_size"],
        ),
        (
            LLAMA,
            {"tensor_parallel": 4, "precision": "fp32"},
            ["gated_mlp", "num_query_groups", "micro_batch_size"],
            [],
        ),
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


@pytest.mark.parametrize(
    ("machine", "transformer", "changes", "fields"),
    [
        ("local", GPT, {}, ["zero_stage"]),
        ("aurora", GPT, {"zero_stage": 0}, ["zero_stage"]),
        ("local", GPT, {"zero_stage": 2, "pipeline_parallel": 1}, []),
        ("local", GPT, {"virtual_stages": 2}, []),  # on Megatron's own engine
        ("local", LLAMA, {}, []),
        ("frontier", GPT, {}, []),
    ],
)
def test_the_norm_of_a_pipeline_without_apex(
    machine: str,
    transformer: Transformer,
    changes: dict[str, object],
    fields: list[str],
    tmp_path: Path,
) -> None:
    strategy = replace(BASE, **changes)  # type: ignore[arg-type]  # typed by the dataclass itself
    working = checkout(tmp_path / "working", *WORKING)
    assert refused(working, transformer, strategy, load_machine(machine)) == fields
    last = checkout(tmp_path / "last")
    assert refused(last, transformer, strategy, load_machine(machine)) == []


def test_the_commit_that_works_is_named(tmp_path: Path) -> None:
    defects = defects_of(checkout(tmp_path, *LAST))
    gated, grouped, *_ = refusals(defects, LLAMA, BASE, FRONTIER)
    assert "6acc370a" in gated.valid
    assert "6acc370a" in grouped.valid
    assert "megatron/model/rotary_pos_embedding.py" in gated.reason


@pytest.mark.parametrize("path", ["", "/inside/a/container"])
def test_an_unreadable_checkout_counts_as_the_recommended_one(path: str, tmp_path: Path) -> None:
    assert defects_of(path) == defects_of(checkout(tmp_path, *WORKING))
    assert {defect.recommended for defect in defects_of(path)} == {True}
    assert {defect.recommended for defect in set(DEFECTS) - set(defects_of(path))} == {False}
