"""Model, machine and layout of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.diagnosis.subject import RunSubject, subject_of_run
from evaluators.run_log import read_run
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from tests.evaluators.run_log.logs import bundled, megatron, torchtitan, written


def subject(folder: Path, text: str, **options: object) -> RunSubject:
    return subject_of_run(read_run(written(folder, text)), **options)  # type: ignore[arg-type]


def test_megatrons_arguments_give_all(tmp_path: Path) -> None:
    found = subject(tmp_path, megatron([3.0] * 5))
    assert found.transformer is not None
    assert found.machine is not None
    assert found.strategy is not None
    assert (found.transformer.num_layers, found.machine.name) == (32, "dgx-h100")
    assert found.strategy.short() == (
        "TP 2 · PP 1 · MBS 1 · GAS 16 · ZeRO-1 · 8 nodes · SP · no recompute · bf16"
    )
    assert (found.gpus, found.samples, found.missing, found.assumed) == (64, 512, (), ())


def test_a_mesh_and_a_name_give_all(tmp_path: Path) -> None:
    found = subject(tmp_path, torchtitan([7000.0] * 5))
    assert found.transformer is not None
    assert found.transformer.name == "llama-3-8b"
    assert found.strategy is not None
    assert (found.gpus, found.samples, found.strategy.zero_stage) == (8, 8, 3)
    assert "selective recompute" in found.assumed


def test_a_name_with_another_size_is_not_believed(tmp_path: Path) -> None:
    text = torchtitan([7000.0] * 5).replace("8,030,261,248", "178,000,000")
    assert subject(tmp_path, text).missing == ("model",)


def test_without_anything_stated_all_is_missing(tmp_path: Path) -> None:
    found = subject(tmp_path, bundled([1.0] * 5))
    assert found.missing == ("model", "machine", "nodes")
    assert found.strategy is None


def test_what_the_user_states_counts(tmp_path: Path) -> None:
    found = subject(
        tmp_path,
        bundled([1.0] * 5),
        transformer=load_model("llama-3-8b"),
        machine=load_machine("dgx-a100"),
        nodes=2,
        layout="tp=4,mbs=2,gbs=64,zero=1",
    )
    assert found.strategy is not None
    assert found.strategy.short().startswith("TP 4 · PP 1 · MBS 2 · GAS 8 · ZeRO-1 · 2 nodes")
    assert (found.missing, found.gpus) == ((), 16)


def test_an_unreadable_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is no dimension of a layout"):
        subject(tmp_path, bundled([1.0] * 5), layout="tensors=4")


def test_precision_is_that_of_the_arguments(tmp_path: Path) -> None:
    for changed, precision in (
        ({"bf16": False}, "fp32"),
        ({"fp8": "hybrid"}, "fp8"),
        ({"bf16": False, "fp16": True}, "fp16"),
    ):
        found = subject(tmp_path, megatron([3.0] * 5, changed=changed))
        assert found.strategy is not None
        assert found.strategy.precision == precision


def test_the_batch_that_deepspeed_runs_counts(tmp_path: Path) -> None:
    lines = ["[INFO] [engine.py:83:__init__] CONFIG: micro_batches=1 micro_batch_size=4"]
    found = subject(tmp_path, megatron([3.0] * 5, lines=lines))
    assert (found.samples, found.ran_samples) == (512, 128)


def test_nodes_of_another_size_are_taken(tmp_path: Path) -> None:
    text = megatron([3.0] * 5, lines=["torchrun --nproc_per_node 4 train.py"])
    found = subject(tmp_path, text)
    assert found.machine is not None
    assert found.strategy is not None
    assert (found.machine.gpus_per_node, found.strategy.num_nodes) == (4, 16)


def test_experts_tell_models_of_one_shape_apart(tmp_path: Path) -> None:
    mixtral = {"num_experts": 8, "moe_router_topk": 2, "padded_vocab_size": 32000}
    found = subject(tmp_path, megatron([3.0] * 5, changed=mixtral | {"seq_length": 4096}))
    assert found.transformer is not None
    assert found.transformer.name == "mixtral-8x7b"
