"""Every layout computes the same training run.

Of the layouts that always run, each pair of values of two dimensions occurs in one; with
AUTOTUNE_ALL_LAYOUTS=1 all of them run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from evaluators.local.backend import LocalBackend
from search_spaces.transformer import Transformer
from tests.evaluators.local.trials import GPT, LLAMA, request, run, strategy

STEPS = 4
GLOBAL_BATCH = 8

Layout = tuple[Transformer, int, int, int, int, dict[str, Any]]
"""Model, ranks, TP, PP, MBS, others; GAS follows from the global batch."""

PAIRWISE: list[Layout] = [
    (GPT, 2, 1, 1, 1, {"zero_stage": 2, "activation_checkpointing": "selective"}),
    (
        GPT,
        2,
        1,
        1,
        1,
        {"zero_stage": 2, "activation_checkpointing": "full", "flash_attention": True},
    ),
    (GPT, 2, 1, 1, 1, {"zero_stage": 3, "activation_checkpointing": "full"}),
    (GPT, 2, 1, 1, 4, {"zero_stage": 3}),
    (GPT, 4, 1, 4, 4, {}),
    (GPT, 4, 2, 1, 4, {"zero_stage": 1, "activation_checkpointing": "full"}),
    (GPT, 4, 2, 2, 1, {"activation_checkpointing": "full"}),
    (GPT, 4, 4, 1, 1, {}),
    (GPT, 4, 4, 1, 4, {"activation_checkpointing": "selective", "flash_attention": True}),
    (GPT, 4, 4, 1, 4, {"activation_checkpointing": "full", "flash_attention": True}),
    (LLAMA, 4, 1, 2, 1, {"zero_stage": 1, "flash_attention": True}),
    (LLAMA, 4, 1, 2, 4, {"zero_stage": 1, "activation_checkpointing": "selective"}),
    (LLAMA, 4, 1, 4, 1, {"activation_checkpointing": "selective"}),
    (
        LLAMA,
        4,
        1,
        4,
        4,
        {"zero_stage": 1, "activation_checkpointing": "full", "flash_attention": True},
    ),
    # Four layers in three stages: two, one and one.
    (GPT, 3, 1, 3, 2, {"zero_stage": 1}),
    (LLAMA, 3, 1, 3, 1, {"activation_checkpointing": "selective"}),
    (LLAMA, 4, 2, 1, 4, {"zero_stage": 2, "flash_attention": True}),
    (
        LLAMA,
        4,
        2,
        1,
        4,
        {"zero_stage": 3, "activation_checkpointing": "selective", "flash_attention": True},
    ),
    # Sequences in parts.
    (GPT, 4, 1, 1, 4, {"context_parallel": 4, "zero_stage": 2}),
    (GPT, 4, 2, 1, 1, {"context_parallel": 2, "activation_checkpointing": "full"}),
    (LLAMA, 4, 1, 1, 1, {"context_parallel": 2, "zero_stage": 3, "flash_attention": True}),
    (
        LLAMA,
        4,
        1,
        2,
        4,
        {"context_parallel": 2, "zero_stage": 1, "activation_checkpointing": "selective"},
    ),
]
FURTHER: list[Layout] = [
    (GPT, 1, 1, 1, 8, {}),
    (GPT, 1, 1, 1, 2, {"activation_checkpointing": "full"}),
    (GPT, 1, 1, 1, 4, {"flash_attention": True, "activation_checkpointing": "selective"}),
    (GPT, 2, 2, 1, 2, {"activation_checkpointing": "selective"}),
    (GPT, 4, 4, 1, 8, {}),
    (GPT, 2, 1, 2, 1, {}),
    (GPT, 2, 1, 2, 2, {"zero_stage": 1, "activation_checkpointing": "full"}),
    (GPT, 4, 1, 4, 2, {}),
    (GPT, 2, 1, 1, 4, {}),
    (GPT, 4, 1, 1, 1, {}),
    (GPT, 4, 1, 1, 1, {"zero_stage": 1}),
    (GPT, 4, 1, 1, 2, {"zero_stage": 2}),
    (GPT, 4, 1, 1, 1, {"zero_stage": 3}),
    (GPT, 4, 2, 1, 2, {"zero_stage": 1}),
    (GPT, 4, 2, 1, 4, {"zero_stage": 2, "activation_checkpointing": "full"}),
    (GPT, 4, 2, 1, 4, {"zero_stage": 3}),
    (GPT, 4, 2, 2, 4, {}),
    (GPT, 4, 2, 2, 2, {"zero_stage": 1}),
    (GPT, 4, 1, 2, 2, {"zero_stage": 1, "flash_attention": True}),
    (GPT, 8, 2, 2, 2, {"zero_stage": 1, "activation_checkpointing": "full"}),
    (LLAMA, 4, 2, 2, 4, {"activation_checkpointing": "full"}),
    (LLAMA, 4, 1, 4, 2, {"zero_stage": 1, "flash_attention": True}),
    (LLAMA, 4, 2, 1, 4, {"zero_stage": 3, "activation_checkpointing": "full"}),
    (GPT, 8, 2, 1, 4, {"context_parallel": 2, "activation_checkpointing": "full"}),
    (LLAMA, 8, 1, 2, 4, {"context_parallel": 2, "zero_stage": 1}),
]
LAYOUTS = PAIRWISE + (FURTHER if os.environ.get("AUTOTUNE_ALL_LAYOUTS") == "1" else [])


def name_of(layout: Layout) -> str:
    transformer, *shape, others = layout
    return "-".join(map(str, [transformer.name, *shape, *others.values()]))


def values(layout: Layout) -> Mapping[str, object]:
    """The value of each dimension; of a micro-batch, whether it has more than one sample."""
    transformer, _, tensor, pipeline, micro_batch, others = layout
    kept = ("context_parallel", "zero_stage", "activation_checkpointing", "flash_attention")
    chosen = strategy(tensor, pipeline, micro_batch_size=micro_batch, **others)
    return {
        "model": transformer.name,
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "micro_batch": micro_batch > 1,
    } | {name: getattr(chosen, name) for name in kept}


def pairs(layouts: Sequence[Layout]) -> set[tuple[tuple[str, object], ...]]:
    return {pair for layout in layouts for pair in combinations(values(layout).items(), 2)}


def losses(backend: LocalBackend, directory: Path, layout: Layout) -> list[float]:
    """Mean loss of each optimizer step, as the trial's log gives it."""
    transformer, ranks, tensor, pipeline, micro_batch, others = layout
    one_replica = tensor * pipeline * others.get("context_parallel", 1)
    accumulation = GLOBAL_BATCH * one_replica // (ranks * micro_batch)
    batch = {"micro_batch_size": micro_batch, "gradient_accumulation_steps": accumulation}
    trial = request(
        directory,
        strategy(tensor, pipeline, **batch, **others),
        ranks=ranks,
        transformer=transformer,
        warmup_iterations=0,
        measured_iterations=STEPS,
    )
    outcome = run(backend, trial)
    assert outcome.error is None, outcome.log_tail
    lines = (directory / "trial.log").read_text().splitlines()
    return [float(line.split()[-1]) for line in lines if "| loss" in line]


@pytest.fixture(scope="module")
def alone(
    backend: LocalBackend, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, list[float]]:
    """By model: on one rank, one sample after another."""
    return {
        transformer.name: losses(
            backend, tmp_path_factory.mktemp(transformer.name), (transformer, 1, 1, 1, 1, {})
        )
        for transformer in (GPT, LLAMA)
    }


@pytest.mark.parametrize("layout", LAYOUTS, ids=name_of)
def test_every_layout_has_the_same_losses(
    backend: LocalBackend, tmp_path: Path, alone: Mapping[str, list[float]], layout: Layout
) -> None:
    assert losses(backend, tmp_path, layout) == pytest.approx(alone[layout[0].name], abs=1e-5)


def test_each_pair_of_values_that_occurs_is_in_a_layout_that_always_runs() -> None:
    assert pairs(FURTHER) <= pairs(PAIRWISE)


def test_the_models_learn(alone: Mapping[str, list[float]]) -> None:
    """So that a step which changes nothing would be seen."""
    gpt, llama = alone["gpt"], alone["llama"]
    assert len(gpt) == len(llama) == STEPS
    assert gpt[-1] < gpt[0] - 0.01
    assert llama[-1] < llama[0] - 0.01
    assert gpt != pytest.approx(llama, abs=1e-5)


@pytest.mark.parametrize(
    "layout",
    [
        (GPT, 4, 2, 1, 4, {"precision": "bf16"}),
        (GPT, 4, 2, 2, 4, {"precision": "bf16"}),
        (GPT, 4, 1, 2, 4, {"precision": "bf16", "zero_stage": 1}),
        (GPT, 2, 1, 1, 4, {"precision": "bf16", "zero_stage": 2}),
        (GPT, 2, 1, 1, 4, {"precision": "bf16", "zero_stage": 3}),
    ],
    ids=name_of,
)
def test_bf16_stays_near_fp32(
    backend: LocalBackend, tmp_path: Path, alone: Mapping[str, list[float]], layout: Layout
) -> None:
    assert losses(backend, tmp_path, layout) == pytest.approx(alone["gpt"], abs=0.001)
