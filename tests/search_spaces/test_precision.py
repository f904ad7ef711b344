"""Precisions below 16 bits, and parts of a layer that are recomputed: who has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from search_spaces.catalog import load_machine, load_model
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities, undeclared
from search_spaces.rules import findings
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer
from tests.search_spaces.scene import strategy

H100, B200, MI300X = (load_machine(name) for name in ("dgx-h100", "dgx-b200", "mi300x"))
LLAMA, MOE = load_model("llama-3-8b"), load_model("qwen3-30b-a3b")
DEEPSEEK = load_model("deepseek-v3")
VALUES: dict[str, tuple[str, ...]] = {
    "precision": ("fp8_current", "mxfp8"),
    "activation_checkpointing": ("moe_act", "mla_up_proj", "layernorm"),
}
MODERN = ProgramCapabilities(
    name="a trainer",
    refusals=undeclared("a trainer", VALUES),
    special=tuple(VALUES.items()),
    trains=ANY_PROGRAM.trains,
)


@pytest.mark.parametrize(
    ("changed", "model", "machine", "program", "rule", "words"),
    [
        ({"precision": "fp8"}, LLAMA, H100, ANY_PROGRAM, None, ""),
        ({"precision": "fp8_blockwise"}, LLAMA, MI300X, ANY_PROGRAM, None, ""),
        ({"precision": "nvfp4"}, LLAMA, B200, ANY_PROGRAM, None, ""),
        ({"precision": "fp8"}, LLAMA, load_machine("dgx-a100"), ANY_PROGRAM, "precision", "no fp8"),
        ({"precision": "mxfp8"}, LLAMA, H100, ANY_PROGRAM, "precision", "nothing emulates it"),
        ({"precision": "nvfp4"}, LLAMA, MI300X, ANY_PROGRAM, "precision", "MI300X has no nvfp4"),
        (
            {"precision": "fp8"},
            LLAMA,
            H100,
            MODERN,
            "program",
            "a trainer has no other precision than fp32, bf16, fp16, fp8_current, mxfp8",
        ),
        ({"precision": "fp8_current"}, LLAMA, H100, MODERN, None, ""),
        (
            {"precision": "mxfp8"},
            replace(LLAMA, ffn_hidden_size=14352),
            B200,
            ANY_PROGRAM,
            "narrow_alignment",
            "the width of the MLP on a GPU, 3588 is not divisible by 32, as matrix products in",
        ),
        ({"activation_checkpointing": "moe_act"}, MOE, H100, MODERN, None, ""),
        (
            {"activation_checkpointing": "moe_act"},
            LLAMA,
            H100,
            ANY_PROGRAM,
            "recomputed_parts",
            "llama-3-8b lacks some of the parts to recompute: moe_act",
        ),
        (
            {"activation_checkpointing": "moe"},
            MOE,
            H100,
            MODERN,
            "program",
            "none, selective, full, layernorm, mla_up_proj, moe_act",
        ),
    ],
)
def test_what_is_legal(
    changed: dict[str, Any],
    model: Transformer,
    machine: Machine,
    program: ProgramCapabilities,
    rule: str | None,
    words: str,
) -> None:
    layout = strategy(pipeline_parallel=1, zero_stage=1, **changed)
    refused = [
        each
        for each in findings(layout, model, machine, program=program)
        if each.severity == "refuse"
    ]
    assert [each.rule for each in refused] == ([rule] if rule else [])
    assert words in "".join(each.reason for each in refused)


@pytest.mark.parametrize(
    ("program", "model", "machine", "precisions", "recomputed"),
    [
        (ANY_PROGRAM, MOE, B200, ("bf16", "fp16"), ("none", "selective", "full")),
        (
            MODERN,
            MOE,
            H100,
            ("bf16", "fp16", "fp8_current"),
            ("none", "selective", "full", "moe_act", "layernorm"),
        ),
        (
            MODERN,
            DEEPSEEK,
            B200,
            ("bf16", "fp16", "fp8_current", "mxfp8"),
            ("none", "selective", "full", "moe_act", "mla_up_proj", "layernorm"),
        ),
    ],
)
def test_only_what_the_trainer_declares_is_offered(
    program: ProgramCapabilities,
    model: Transformer,
    machine: Machine,
    precisions: tuple[str, ...],
    recomputed: tuple[str, ...],
) -> None:
    choices: dict[str, Any] = {
        "precision": "auto",
        "activation_checkpointing": "auto",
        "micro_batch_size": 1,
        "pipeline_parallel": 1,
        "zero_stage": 1,
    }
    space = SearchSpace.build(model, machine, nodes=1, choices=choices, program=program)
    assert space.dimensions["precision"] == precisions
    assert space.dimensions["activation_checkpointing"] == recomputed


def test_hardware_flops_count_the_parts_that_are_recomputed() -> None:
    """DeepSeek-V3, one sequence: by the shapes of arXiv 2412.19437, section 4.2; its layer of
    multi-token prediction is one with experts."""
    tokens = DEEPSEEK.seq_length

    def recomputed(kind: Any) -> float:
        again = DEEPSEEK.hardware_flops(1, kind) - DEEPSEEK.model_flops(1)
        return again / (2 * tokens)

    up_projections = 1536 * 128 * (128 + 64) + 512 * 128 * (128 + 128)
    dense = 3 * 7168 * 18432
    experts = 3 * 7168 * 2048 * (8 + 1) + 7168 * 256
    assert recomputed("mla_up_proj") == pytest.approx(62 * up_projections, rel=1e-6)
    assert recomputed("mla_up_proj+mlp") == pytest.approx(62 * up_projections + 3 * dense, rel=1e-6)
    assert recomputed("moe") == pytest.approx(59 * experts, rel=1e-6)
    assert recomputed("layernorm+moe_act") == 0
