"""Stages of lines of Megatron-LM, ms-swift, NeMo and Megatron-Bridge; NVIDIA's are those of
Megatron-Bridge 067f987."""

from __future__ import annotations

import pytest

from autotune.baseline.megatron import arguments
from autotune.baseline.stages import chunks_of_layout, in_words
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput

LLAMA_405B = load_model("llama-3.1-405b")
ACCOUNTED = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
LAYOUT = "--pipeline-model-parallel-layout"


@pytest.mark.parametrize(
    ("model", "line", "stages", "virtual_stages"),
    [
        ("deepseek-v3", f"{LAYOUT} 'Et*4|(tttt|)*14tmL'", 4, 4),
        ("deepseek-v3", f"{LAYOUT} 'Et*4|(tttt|)*14tmL'", 16, 1),
        ("deepseek-v3", f"{LAYOUT} Et|(tt|)*30mL", 8, 4),
        ("deepseek-v3", "--decoder-last-pipeline-num-layers 13", 4, 1),
        ("qwen3-235b-a22b", f"{ACCOUNTED} --num-virtual-stages-per-pipeline-rank 3", 8, 3),
        ("llama-3.1-405b", f"{ACCOUNTED} --num-layers-per-virtual-pipeline-stage 2", 16, 4),
        ("llama-3.1-405b", f"{LAYOUT} Ettttttt|(tttttttt|)*14tttttttL", 8, 2),
        (
            "llama-3.1-405b",
            "--decoder-first-pipeline-num-layers 15 --decoder-last-pipeline-num-layers 15",
            8,
            1,
        ),
        ("llama-3-70b", f"{LAYOUT} Et*20|t*20|t*20|t*20L", 4, 1),
    ],
)
def test_stages_that_a_strategy_has_are_read(
    model: str, line: str, stages: int, virtual_stages: int
) -> None:
    layout = f"--bf16 --pipeline-model-parallel-size {stages} {line}"
    read = arguments(layout, load_model(model))
    assert read.dimensions["pipeline_parallel"] == stages
    assert read.dimensions["virtual_stages"] == virtual_stages
    assert read.unread == ()


def test_an_override_of_megatron_bridge_is_read() -> None:
    line = (
        "model.pipeline_model_parallel_size=16 model.virtual_pipeline_model_parallel_size=4 "
        "model.account_for_embedding_in_pipeline_split=true "
        "model.account_for_loss_in_pipeline_split=true"
    )
    assert arguments(line, LLAMA_405B).dimensions["virtual_stages"] == 4
    off = line.replace("true", "false").replace("16", "9").replace("=4", "=2")
    assert arguments(off, LLAMA_405B).dimensions["pipeline_parallel"] == 9


@pytest.mark.parametrize(
    "line",
    [
        f"{LAYOUT} Ett|(tt|)*61tttL",  # the embedding counts for nothing
        f"{LAYOUT} E|(tt|)*63L",
        "--account-for-embedding-in-pipeline-split",
        "--decoder-first-pipeline-num-layers 21",
        "--decoder-first-pipeline-num-layers few",
        f"{LAYOUT} Et*999|(t*999|)*999L",
    ],
)
def test_other_stages_are_not_read(line: str) -> None:
    with pytest.raises(InvalidInput, match="not read: --") as caught:
        arguments(f"--bf16 --pipeline-model-parallel-size 16 {line}", LLAMA_405B)
    assert caught.value.valid.startswith("stages of ")


def test_runs_of_a_layout_are_expanded() -> None:
    assert chunks_of_layout("Ettt,|(tt|)*3m*2L") == (3, 2, 2, 2, 0)
    assert in_words((3, 2, 2, 2, 0)) == "3, 3 x 2, 0"
