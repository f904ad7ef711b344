"""Every layout computes the same training run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluators.local import LocalBackend
from search_spaces.transformer import Transformer
from tests.evaluators.local.trials import GPT, LLAMA, request, run, strategy

STEPS = 4
GLOBAL_BATCH = 8

# (ranks, TP, PP, MBS, others); GAS follows from the global batch.
LAYOUTS: list[tuple[int, int, int, int, dict[str, Any]]] = [
    (1, 1, 1, 8, {}),
    (1, 1, 1, 2, {"activation_checkpointing": "full"}),
    (1, 1, 1, 4, {"flash_attention": True, "activation_checkpointing": "selective"}),
    (2, 2, 1, 2, {"activation_checkpointing": "selective"}),
    (4, 4, 1, 8, {}),
    (4, 4, 1, 4, {"activation_checkpointing": "full", "flash_attention": True}),
    (2, 1, 2, 1, {}),
    (2, 1, 2, 2, {"zero_stage": 1, "activation_checkpointing": "full"}),
    (4, 1, 4, 2, {}),
    (2, 1, 1, 4, {}),
    (4, 1, 1, 1, {}),
    (4, 1, 1, 1, {"zero_stage": 1}),
    (4, 1, 1, 2, {"zero_stage": 2}),
    (4, 1, 1, 1, {"zero_stage": 3}),
    (2, 1, 1, 2, {"zero_stage": 3, "activation_checkpointing": "full"}),
    (4, 2, 1, 2, {"zero_stage": 1}),
    (4, 2, 1, 4, {"zero_stage": 2, "activation_checkpointing": "full"}),
    (4, 2, 1, 4, {"zero_stage": 3}),
    (4, 2, 2, 4, {}),
    (4, 2, 2, 2, {"zero_stage": 1}),
    (4, 1, 2, 2, {"zero_stage": 1, "flash_attention": True}),
    (8, 2, 2, 2, {"zero_stage": 1, "activation_checkpointing": "full"}),
]
LLAMA_LAYOUTS: list[tuple[int, int, int, int, dict[str, Any]]] = [
    (4, 2, 2, 4, {"activation_checkpointing": "full"}),
    (4, 1, 4, 2, {"zero_stage": 1, "flash_attention": True}),
    (4, 2, 1, 4, {"zero_stage": 3, "activation_checkpointing": "full"}),
]


def losses(
    backend: LocalBackend,
    directory: Path,
    layout: tuple[int, int, int, int, dict[str, Any]],
    transformer: Transformer = GPT,
) -> list[float]:
    """Mean loss of each optimizer step, as the trial's log gives it."""
    ranks, tensor, pipeline, micro_batch, others = layout
    accumulation = GLOBAL_BATCH * tensor * pipeline // (ranks * micro_batch)
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
def gpt(backend: LocalBackend, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """On one rank, one sample after another."""
    return losses(backend, tmp_path_factory.mktemp("gpt"), (1, 1, 1, 1, {}))


@pytest.fixture(scope="module")
def llama(backend: LocalBackend, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses(backend, tmp_path_factory.mktemp("llama"), (1, 1, 1, 1, {}), LLAMA)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_layout_has_the_same_losses(
    backend: LocalBackend,
    tmp_path: Path,
    gpt: list[float],
    layout: tuple[int, int, int, int, dict[str, Any]],
) -> None:
    assert losses(backend, tmp_path, layout) == pytest.approx(gpt, abs=1e-5)


@pytest.mark.parametrize("layout", LLAMA_LAYOUTS, ids=str)
def test_every_layout_of_a_gated_grouped_untied_model_has_the_same_losses(
    backend: LocalBackend,
    tmp_path: Path,
    llama: list[float],
    layout: tuple[int, int, int, int, dict[str, Any]],
) -> None:
    assert losses(backend, tmp_path, layout, LLAMA) == pytest.approx(llama, abs=1e-5)


def test_the_model_learns(gpt: list[float], llama: list[float]) -> None:
    """So that a step which changes nothing would be seen."""
    assert len(gpt) == len(llama) == STEPS
    assert gpt[-1] < gpt[0] - 0.01
    assert llama[-1] < llama[0] - 0.01
    assert gpt != pytest.approx(llama, abs=1e-5)


@pytest.mark.parametrize(
    "layout",
    [
        (2, 1, 1, 4, {}),
        (4, 2, 2, 4, {}),
        (4, 2, 2, 4, {"zero_stage": 1}),
        (2, 1, 1, 4, {"zero_stage": 2}),
        (2, 1, 1, 4, {"zero_stage": 3}),
    ],
    ids=str,
)
def test_bf16_stays_near_fp32(
    backend: LocalBackend,
    tmp_path: Path,
    gpt: list[float],
    layout: tuple[int, int, int, int, dict[str, Any]],
) -> None:
    *shape, others = layout
    bf16 = (shape[0], shape[1], shape[2], shape[3], others | {"precision": "bf16"})
    assert losses(backend, tmp_path, bf16) == pytest.approx(gpt, abs=0.03)
