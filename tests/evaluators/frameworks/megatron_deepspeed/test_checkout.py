from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.cluster.profile import Megatron
from evaluators.frameworks.megatron_deepspeed import checkout
from evaluators.frameworks.megatron_deepspeed.checkout import check_files, check_interpreter
from tests.requirement import require

MAIN = """
group.add_argument('--use-flash-attn', '--use-flash-attn-v1', action='store_true')
group.add_argument('--use-flash-attn-v2', action='store_true')
"""
FORK = "group.add_argument('--use-flash-attn', action='store_true')"


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def megatron(tmp_path: Path) -> Megatron:
    """A profile to which nothing is to be said."""
    root = tmp_path / "checkout"
    write(root, pretrain_gpt_py="", megatron__arguments_py=MAIN)
    write(root, megatron__training_py="import deepspeed\n")
    return Megatron(path=str(root))


def interpreter(folder: Path, *packages: str, **files: str) -> str:
    """A Python that finds these packages and no others beyond its standard library."""
    place = folder / "packages"
    for package in packages:
        write(place, **{f"{package}____init___py": "raise SystemExit('imported')"})
    write(place, **files)
    path = folder / "python"
    path.write_text(f'#!/bin/bash\nPYTHONPATH="{place}" exec {sys.executable} -S "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_nothing_is_said_of_a_sound_checkout(megatron: Megatron, tmp_path: Path) -> None:
    assert check_files(megatron) == []
    assert check_interpreter(megatron, interpreter(tmp_path, "torch", "deepspeed")) == []


@pytest.mark.parametrize(
    ("files", "changed", "removed", "said"),
    [
        ({}, {"path": "/no/such/folder"}, "", "no such folder"),
        ({}, {}, "megatron/training.py", "no checkout of Megatron-DeepSpeed: it has no megatron/t"),
        ({"megatron__training_py": "import torch\n"}, {}, "", "a Megatron-LM without DeepSpeed"),
        ({}, {}, "pretrain_gpt.py", "it has no pretrain_gpt.py"),
        ({"megatron__arguments_py": FORK}, {}, "", "knows no --use-flash-attn-v2"),
    ],
)
def test_what_is_no_checkout_of_the_main_line(
    files: dict[str, str], changed: dict[str, str], removed: str, said: str, megatron: Megatron
) -> None:
    write(Path(megatron.path), **files)
    if removed:
        Path(megatron.path, removed).unlink()
    named = replace(megatron, **changed)  # type: ignore[arg-type]
    (found,) = check_files(named)
    assert (found.field, found.value) == ("megatron.path", named.path)
    assert said in found.reason


def test_a_fork_named_as_the_main_line_and_the_reverse(megatron: Megatron) -> None:
    (found,) = check_files(replace(megatron, variant="ornl"))
    assert (found.field, found.valid) == ("megatron.variant", "'main'")
    write(Path(megatron.path), pretrain_gpt_deepspeed_py="", megatron__arguments_py=FORK)
    (found,) = check_files(megatron)
    assert (found.field, found.valid) == ("megatron.variant", "'ornl'")
    assert "pretrain_gpt_deepspeed.py" in found.reason
    assert check_files(replace(megatron, variant="ornl")) == []


def test_data_that_is_not_there(megatron: Megatron, tmp_path: Path) -> None:
    (tmp_path / "corpus.bin").touch()
    with_data = replace(megatron, data_path=str(tmp_path / "corpus"))
    (found,) = check_files(with_data)
    assert found.field == "megatron.data_path"
    assert f"there is no {tmp_path}/corpus.idx" in found.reason
    (tmp_path / "corpus.idx").touch()
    assert check_files(with_data) == []


def test_a_tokenizers_files(megatron: Megatron, tmp_path: Path) -> None:
    gpt2 = replace(megatron, tokenizer_type="GPT2BPETokenizer", merge_file="/no/merges")
    found = check_files(gpt2)
    assert [f.field for f in found] == ["megatron.vocab_file", "megatron.merge_file"]
    assert "needed by the tokenizer" in found[0].reason
    (tmp_path / "v").touch()
    assert check_files(replace(gpt2, vocab_file=f"{tmp_path}/v", merge_file=f"{tmp_path}/v")) == []


def test_a_tokenizer_by_its_name_on_a_hub_is_believed(megatron: Megatron) -> None:
    named = replace(megatron, tokenizer_type="HFTokenizer", tokenizer_model="meta-llama/Llama-3")
    assert check_files(named) == []
    (found,) = check_files(replace(named, tokenizer_model="/no/such/tokenizer"))
    assert found.field == "megatron.tokenizer_model"


def test_a_misspelt_tokenizer_and_one_that_the_fork_lacks(megatron: Megatron) -> None:
    (found,) = check_files(replace(megatron, tokenizer_type="GPT2Tokenizer"))
    assert "did you mean GPT2BPETokenizer" in found.reason
    write(Path(megatron.path), pretrain_gpt_deepspeed_py="", megatron__arguments_py=FORK)
    fork = replace(megatron, variant="ornl", tokenizer_type="HFTokenizer", tokenizer_model="a/b")
    (found,) = check_files(fork)
    assert found.field == "megatron.tokenizer_type"


def test_an_interpreter_that_cannot_be_used(megatron: Megatron, tmp_path: Path) -> None:
    reasons = {
        "/no/such/python": "no such interpreter",
        "/bin/false": "cannot be asked",
        interpreter(tmp_path, "deepspeed"): "it lacks torch",
    }
    for python, reason in reasons.items():
        (found,) = check_interpreter(megatron, python)
        assert (found.field, found.value) == ("python", python)
        assert reason in found.reason


def test_what_a_checkout_imports_is_asked_for(megatron: Megatron, tmp_path: Path) -> None:
    write(Path(megatron.path), megatron__arguments_py=f"from mpi4py import MPI\n{MAIN}")
    python = interpreter(tmp_path, "torch", "deepspeed")
    (found,) = check_interpreter(megatron, python)
    assert "it lacks mpi4py" in found.reason
    interpreter(tmp_path, "mpi4py")
    assert check_interpreter(megatron, python) == []


def test_pybind11_is_asked_for_until_the_helpers_are_compiled(
    megatron: Megatron, tmp_path: Path
) -> None:
    data = Path(megatron.path, "megatron", "data")
    data.mkdir(parents=True, exist_ok=True)
    (data / "Makefile").write_text("CPPFLAGS += $(shell python3 -m pybind11 --includes)\n")
    python = interpreter(tmp_path, "torch", "deepspeed")
    (found,) = check_interpreter(megatron, python)
    assert "it lacks pybind11" in found.reason
    (data / "helpers.cpython-311-x86_64-linux-gnu.so").touch()
    assert check_interpreter(megatron, python) == []


def test_a_torchvision_must_match_its_torch(megatron: Megatron, tmp_path: Path) -> None:
    write(Path(megatron.path), megatron__data__vit_dataset_py="import torchvision\n")
    (found,) = check_interpreter(megatron, interpreter(tmp_path, "torch", "deepspeed"))
    assert "it lacks torchvision" in found.reason
    assert found.valid.endswith("torchvision matching your torch")


def test_a_deepspeed_that_is_too_new_for_the_checkout(megatron: Megatron, tmp_path: Path) -> None:
    compressing = "from deepspeed.compression.compress import init_compression\n"
    write(Path(megatron.path), megatron__training_py=compressing)
    python = interpreter(
        tmp_path,
        "torch",
        "deepspeed",
        **{"deepspeed-9.8.7.dist-info__METADATA": "Name: deepspeed\nVersion: 9.8.7\n"},
    )
    (found,) = check_interpreter(megatron, python)
    assert "DeepSpeed 9.8.7 is too new for this checkout" in found.reason
    assert "0.16.9" in found.valid
    interpreter(tmp_path, deepspeed__compression__compress_py="")
    assert check_interpreter(megatron, python) == []


def test_an_interpreter_that_hangs(
    megatron: Megatron, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkout, "TIME_LIMIT_S", 0.2)
    path = tmp_path / "python"
    path.write_text("#!/bin/bash\nexec sleep 60\n")
    path.chmod(0o755)
    (found,) = check_interpreter(megatron, str(path))
    assert "did not answer" in found.reason


def test_this_services_own_interpreter_is_seen_as_it_is(megatron: Megatron) -> None:
    have = [importlib.util.find_spec(name) for name in ("torch", "deepspeed")]
    require(all(have), "torch and deepspeed")
    assert check_interpreter(megatron, sys.executable) == []
