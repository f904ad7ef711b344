from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.trainer.libraries import gpu_count
from evaluators.trainer.support import CAPABILITIES, indivisible, unsupported, unsupported_within
from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from tests.evaluators.local.trials import GPT, LLAMA, strategy
from tests.evaluators.trainer.test_layouts import MIXTURE


@pytest.mark.parametrize(
    ("refused", "word"),
    [
        (strategy(virtual_stages=2), "virtual_stages"),
        (strategy(sequence_parallel=True), "sequence"),
        (strategy(1, 2, zero_stage=2), "pipeline_parallel"),
        (strategy(precision="fp16"), "fp16"),
        (strategy(2, zero_stage=3, expert_parallel=2, expert_tensor_parallel=2), "wrong norm"),
    ],
    ids=str,
)
def test_what_it_cannot_run_is_refused_in_a_sentence(refused: object, word: str) -> None:
    assert isinstance(refused, type(strategy()))
    assert word in (unsupported(refused) or "")


def test_all_else_is_supported() -> None:
    for stage in (0, 1, 2, 3):
        assert unsupported(strategy(2, 1, zero_stage=stage, precision="bf16")) is None
    assert unsupported(strategy(2, 4, zero_stage=1, activation_checkpointing="selective")) is None


def test_one_strategy_that_it_cannot_run_speaks_for_a_lattice() -> None:
    fine = [strategy(2, 1), strategy(1, 2)]
    assert unsupported_within(Lattice.of(fine, gpus_per_node=2)) is None
    mixed = Lattice.of([*fine, strategy(2, 1, sequence_parallel=True)], gpus_per_node=2)
    assert "sequence_parallel" in (unsupported_within(mixed) or "")


def test_a_model_that_cannot_be_cut_is_refused() -> None:
    assert indivisible(GPT, strategy(4, 4)) is None
    assert "3 tensor-parallel" in (indivisible(GPT, strategy(3)) or "")
    assert "query groups" in (indivisible(LLAMA, strategy(4)) or "")
    assert "stages" in (indivisible(GPT, strategy(1, 5)) or "")


def test_experts_that_cannot_be_shared_out_are_refused() -> None:
    assert indivisible(MIXTURE, strategy(2, expert_parallel=4, expert_tensor_parallel=2)) is None
    assert "tensor-parallel ranks" in (indivisible(MIXTURE, strategy(2)) or "")
    assert "3 ranks" in (indivisible(MIXTURE, strategy(expert_parallel=3)) or "")
    assert "first pipeline stage" in (
        indivisible(MIXTURE, strategy(1, 2, expert_parallel=2, zero_stage=1)) or ""
    )
    balanced = strategy(settings=(("routing", "balanced"),))
    assert indivisible(MIXTURE, balanced) is None
    assert "no experts" in (indivisible(GPT, balanced) or "")


def test_a_model_with_unsupported_layers_is_refused_clearly() -> None:
    predicting = replace(MIXTURE, mtp_layers=1)
    assert "is not known to train multi-token prediction" in (
        indivisible(predicting, strategy()) or ""
    )


def test_the_ready_space_of_experts_on_this_machine() -> None:
    tiny, local = load_model("tiny-moe"), load_machine("local")
    choices = load_space("tiny-moe-local")
    space = SearchSpace.build(tiny, local, nodes=1, choices=choices, program=CAPABILITIES)
    legal = list(space.lattice())
    assert {(s.expert_parallel, s.context_parallel) for s in legal} >= {(1, 1), (2, 2), (4, 1)}
    assert {s.expert_tensor_parallel == s.tensor_parallel for s in legal} == {True}


def test_it_is_known_without_torch() -> None:
    imports = (
        "import sys; import evaluators.trainer, evaluators.local, evaluators.trainer.supervisor; "
        "print(sorted({'torch', 'deepspeed'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", imports], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_gpus_are_counted_as_a_process_would_see_them(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpu_count({}, tmp_path) == 3
    assert gpu_count({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == 0
    assert gpu_count({"CUDA_VISIBLE_DEVICES": "0,2"}, tmp_path) == 2
    assert gpu_count({}, tmp_path / "absent") == 0


def test_gpus_of_amd_count_where_torch_is_built_for_them(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    for number in range(128, 136):
        (tmp_path / "dri" / f"renderD{number}").touch()
    assert gpu_count({}, tmp_path, rocm=True) == 0
    (tmp_path / "kfd").touch()
    assert gpu_count({}, tmp_path, rocm=True) == 8
    assert gpu_count({"ROCR_VISIBLE_DEVICES": "0,1,2"}, tmp_path, rocm=True) == 3
    assert gpu_count({"CUDA_VISIBLE_DEVICES": ""}, tmp_path, rocm=True) == 0
    assert gpu_count({}, tmp_path, rocm=False) == 0
