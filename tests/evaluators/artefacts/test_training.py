"""The file that trains: what it checks before it starts, and what it tells the trainer."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.choices import TrainerName
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.rendering import StartPlan, start_of
from evaluators.artefacts import Launch, trainer_artefacts
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.evaluators.adapter import megatron_on_cpu
from tests.evaluators.adapter.megatron_lm import answers, answers_of_bridge, layers_of_arguments
from tests.evaluators.adapter.samples import MACHINE, MODEL, strategy

MODELS: dict[str, dict[str, Any]] = {
    "llama-3.1-405b": {"tensor_parallel": 8, "pipeline_parallel": 2, "sequence_parallel": True},
    "qwen3-235b-a22b": {"pipeline_parallel": 2, "expert_parallel": 8},
    "deepseek-v3": {"expert_parallel": 16},
    "gpt-oss-120b": {"expert_parallel": 8},
    "mixtral-8x7b": {"expert_parallel": 8},
    "qwen3-8b": {"context_parallel": 2},
}
"""Model -> its layout on 16 GPUs."""
ON_REQUEST: dict[str, Any] = {
    "activation_checkpointing": "none",
    "expert_parallel": 8,
}
GRAPHS = ("cuda_graphs", "attn+moe_router+moe_preprocess")
SETTINGS: dict[TrainerName, tuple[tuple[str, str], ...]] = {
    "megatron-lm": (("dispatcher", "hybridep"), GRAPHS),
    "megatron-bridge": (GRAPHS,),  # of a dispatcher it asks the GPU
}
BENCHMARK = re.compile(
    r"mock|NullTokenizer|force_load_balanc\w+=true|force-load-balancing|force_load_balance"
)
RECORD = """#!/bin/bash
[[ "$1" != -c ]] || exit 0  # it has all modules
printf '%s\\n' "$@" >"$OUT/words"
env >"$OUT/variables"
"""


TWO_NODES: dict[str, Any] = {
    **dict.fromkeys(("tensor_parallel", "pipeline_parallel", "micro_batch_size"), 1),
    "gradient_accumulation_steps": 4,
    "zero_stage": 1,
    "num_nodes": 2,
}


def _files(name: str, trainer: TrainerName = "megatron-lm", **changed: Any) -> dict[str, str]:
    launch = Launch(
        transformer=load_model(name),
        machine=load_machine("dgx-h100"),
        strategy=Strategy(**TWO_NODES | changed),
        name="mine",
        evaluator="simulated",
    )
    return trainer_artefacts(launch, trainer)


def _run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    python = folder / "python3"
    python.write_text(RECORD)
    python.chmod(0o755)
    (folder / "scripts" / "training").mkdir(parents=True, exist_ok=True)
    (folder / "scripts" / "training" / "run_recipe.py").touch()
    own = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "OUT": str(folder),
        "RANK": "0",
        "TRAINER_DIR": str(folder),
    }
    return subprocess.run(
        ["bash", "-c", script], env=own | variables, capture_output=True, text=True, check=False
    )


def _set(folder: Path) -> dict[str, str]:
    for name in ("data.bin", "data.idx", "tokenizer", "saved"):
        (folder / name).touch()
    paths = {"DATA": "data", "TOKENIZER": "tokenizer", "SAVE": "saved"}
    return {
        **{name: str(folder / path) for name, path in paths.items()},
        "TRAIN_ITERS": "1000",
        "LR": "0.0003",
    }


def test_what_is_not_set_or_not_there_ends_it_at_once(tmp_path: Path) -> None:
    script = _files("qwen3-8b")["train_rank.sh"]
    ended = _run(script, tmp_path)
    assert ended.returncode == 2
    for name in ("DATA", "TOKENIZER", "SAVE", "TRAIN_ITERS", "LR"):
        assert f"\n{name} is not set: " in ended.stderr
    given = _set(tmp_path)
    (tmp_path / "data.idx").unlink()
    ended = _run(script, tmp_path, **given | {"TOKENIZER": "my/tokenizer"})
    assert ended.returncode == 2
    assert f"DATA: there is no {given['DATA']}.idx" in ended.stderr
    assert "TOKENIZER: my/tokenizer is not an absolute path" in ended.stderr
    other = _run(script, tmp_path, **given | {"RANK": "1"})
    assert (other.returncode, other.stderr) == (2, ""), "one rank says it"
    assert not (tmp_path / "words").exists()


def test_a_training_goes_on_where_it_saved(tmp_path: Path) -> None:
    script, given = _files("qwen3-8b")["train_rank.sh"], _set(tmp_path)
    words = _words(script, tmp_path, given)
    assert words[words.index("--load") + 1] == given["SAVE"]
    (tmp_path / "elsewhere").mkdir()
    words = _words(script, tmp_path, given | {"LOAD": str(tmp_path / "elsewhere")})
    assert words[words.index("--load") + 1] == str(tmp_path / "elsewhere")


def _words(script: str, folder: Path, given: Mapping[str, str]) -> list[str]:
    ran = _run(script, folder, **given)
    assert ran.returncode == 0, ran.stderr
    return (folder / "words").read_text().splitlines()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("trainer", ["megatron-lm", "megatron-bridge"])
def test_a_training_has_nothing_of_a_benchmark(name: str, trainer: TrainerName) -> None:
    files = _files(name, trainer, **MODELS[name])
    for file, text in files.items():
        assert bool(BENCHMARK.search(text)) == file.startswith("benchmark"), file
        for line in re.findall(r".*grad-reduce-in-bf16.*", text):
            assert "# gradients are added up in bf16" in line
    assert "# not known: " in files["train.sbatch"]
    assert "save" not in files["benchmark.sbatch"].replace("checkpoint.save=null", "")


OF_MODEL = {
    "llama-3.1-405b": ("--rotary-base 500000", "--use-rope-scaling", "--rope-scaling-factor 8.0"),
    "qwen3-235b-a22b": (
        *("--qk-layernorm", "--rotary-base 1000000", "--norm-epsilon 1e-06"),
        *("--moe-router-load-balancing-type aux_loss", "--moe-aux-loss-coeff 0.001"),
    ),
    "deepseek-v3": (
        *("--moe-router-score-function sigmoid", "--moe-router-num-groups 8"),
        *("--moe-router-group-topk 4", "--moe-router-enable-expert-bias", "--mtp-num-layers 1"),
        *("--moe-router-topk-scaling-factor 2.5", "--moe-shared-expert-intermediate-size 2048"),
        *("--moe-router-load-balancing-type seq_aux_loss", "--moe-aux-loss-coeff 0.0001"),
        *("--rope-type yarn", "--rotary-scaling-factor 40.0", "--mscale-all-dim 1.0"),
    ),
    "gpt-oss-120b": (
        *("--softmax-type learnable", "--position-embedding-type yarn", "--rotary-base 150000"),
        *("--rotary-scaling-factor 32.0", "--no-yarn-correction-range-round-to-int"),
    ),
}


@pytest.mark.parametrize("name", OF_MODEL)
def test_the_model_is_complete(name: str) -> None:
    text = _files(name, "megatron-lm", **MODELS[name])["train_rank.sh"]
    options = [line.partition("  #")[0].strip() for line in text.splitlines()]
    assert [each for each in OF_MODEL[name] if each not in options] == []


def test_what_is_not_known_of_a_model_is_named() -> None:
    known = _files("qwen3-8b")["train_rank.sh"]
    launch = Launch(
        transformer=replace(load_model("qwen3-8b"), details=None),
        machine=load_machine("dgx-h100"),
        strategy=Strategy(**TWO_NODES),
        name="mine",
        evaluator="simulated",
    )
    unknown = trainer_artefacts(launch, "megatron-lm")["train_rank.sh"]
    for part in ("base and scaling of rotary positions", "whether queries and keys", "epsilon of"):
        line = f"# not known: {part}"
        assert line in unknown
        assert line not in known


LM, BRIDGE = "AUTOTUNE_MEGATRON_LM", "AUTOTUNE_MEGATRON_BRIDGE"


def _launches(trainer: TrainerName) -> dict[str, dict[str, Any]]:
    return MODELS | {"qwen3-30b-a3b": ON_REQUEST | {"settings": SETTINGS[trainer]}}


def _requests(trainer: TrainerName, skip: int, folder: Path) -> list[dict[str, Any]]:
    requests, given = [], _set(folder)
    for name, layout in _launches(trainer).items():
        words = _words(_files(name, trainer, **layout)["train_rank.sh"], folder, given)
        lines = (folder / "variables").read_text().splitlines()
        names = ("CUDA_DEVICE_MAX_CONNECTIONS", "NVTE_", "NCCL_", "PYTORCH_")
        variables = dict(line.split("=", 1) for line in lines if line.startswith(names))
        requests.append({"words": words[skip:], "variables": variables, "world_size": 16})
    return requests


@pytest.mark.skipif(not os.environ.get(LM), reason=f"{LM} names no checkout")
def test_megatron_lm_accepts_each_training(tmp_path: Path) -> None:
    requests = _requests("megatron-lm", 2, tmp_path)
    for name, args in zip(_launches("megatron-lm"), answers(os.environ[LM], requests), strict=True):
        assert "error" not in args, (name, args["error"])
        model = load_model(name)
        layers = layers_of_arguments(args)
        assert layers == {field: getattr(model, field) for field in layers}
        assert args["train_iters"] == 1000
        assert args["save"] == args["load"] == str(tmp_path / "saved")


@pytest.mark.skipif(not os.environ.get(BRIDGE), reason=f"{BRIDGE} names no checkout")
def test_megatron_bridge_accepts_each_training(tmp_path: Path) -> None:
    requests = _requests("megatron-bridge", 1, tmp_path)
    answered = answers_of_bridge(os.environ[BRIDGE], requests)
    for name, config in zip(_launches("megatron-bridge"), answered, strict=True):
        assert "error" not in config, (name, config["error"])
        assert config["train.train_iters"] == 1000
        assert config["checkpoint.save"] == config["checkpoint.load"] == str(tmp_path / "saved")
        assert config["dataset.blend"] == [[str(tmp_path / "data")], None]


@pytest.mark.long
@pytest.mark.skipif(
    not any(Path(os.environ.get(LM) or ".", "megatron/core/datasets").glob("helpers_cpp*.so")),
    reason=f"{LM} names no checkout whose helpers_cpp was compiled",
)
def test_it_trains_on_data_saves_and_goes_on(tmp_path: Path) -> None:
    """On a CPU. The data are those of Megatron-DeepSpeed's trials; a Hugging Face tokenizer needs
    its package, and only Megatron-LM's older checkpoints need no other process."""
    model = replace(MODEL, gated_mlp=True)
    one = strategy(precision="bf16", zero_stage=1, gradient_accumulation_steps=2)
    machine = replace(MACHINE, gpus_per_node=1)
    plan = StartPlan(
        transformer=model,
        machine=machine,
        strategy=strategy(),
        iterations=4,
        out=str(tmp_path),
        python=sys.executable,
    )
    written = start_of(load_adapter("megatron-deepspeed"), plan).prepare
    subprocess.run(written, env=os.environ | {"LOCAL_RANK": "0"}, check=True)
    for folder in ("saved", "tokenizer"):
        (tmp_path / folder).mkdir()
    python = tmp_path / "python3"
    module = f"{sys.executable} -m {megatron_on_cpu.__name__} {os.environ[LM]}"
    look = f'[[ "$1" != -c ]] || exec {sys.executable} "$@"'
    python.write_text(f'#!/bin/bash\n{look}\nexec {module} "${{@:3}}"\n')
    python.chmod(0o755)
    launch = Launch(
        transformer=model, machine=machine, strategy=one, name="mine", evaluator="simulated"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    here = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OUT": str(tmp_path / "out"),
        "TRAINER_DIR": str(Path(__file__).parents[3]),
        "PYTHONPATH": os.environ[LM],
        "DATA": str(tmp_path / "random-tokens"),
        "TOKENIZER": str(tmp_path / "tokenizer"),
        "SAVE": str(tmp_path / "saved"),
        "SAVE_INTERVAL": "2",
        "LR": "0.001",
        "LR_WARMUP_ITERS": "1",
        "EXTRA_ARGS": "--tokenizer-type NullTokenizer --vocab-size 512 --eval-iters 1 "
        "--num-workers 0 --ckpt-format torch --no-load-optim",
    }
    for iterations, first in (("3", 1), ("5", 4)):
        ran = subprocess.run(
            ["bash", "-c", trainer_artefacts(launch, "megatron-lm")["train_rank.sh"]],
            env=os.environ | here | {"TRAIN_ITERS": iterations},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
        steps = [int(step) for step in re.findall(r"\] iteration +(\d+)/", ran.stdout)]
        assert steps == list(range(first, int(iterations) + 1))
    assert (tmp_path / "saved" / "iter_0000005").is_dir()
