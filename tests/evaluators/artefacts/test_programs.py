"""Which program, and which model, a launch file of an adapter starts."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import adapter_file, load_adapter
from evaluators.adapter.reading import read_adapter
from evaluators.artefacts import Launch, artefacts
from evaluators.cluster.profile import ClusterProfile
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInputs
from search_spaces.strategy import Strategy

LAYOUT = Strategy(
    tensor_parallel=1,
    pipeline_parallel=1,
    micro_batch_size=1,
    gradient_accumulation_steps=8,
    zero_stage=3,
    num_nodes=1,
)
TITANS = ("torchtitan-2026-08", "torchtitan-0.2")


def _launch(adapter: Adapter, model: str = "qwen3-8b", *, python: str = "") -> Launch:
    profile = ClusterProfile(name="local", adapter=adapter, python=python)
    return Launch(
        transformer=load_model(model),
        machine=load_machine("dgx-h100"),
        strategy=LAYOUT,
        name="mine",
        evaluator="simulated",
        profile=profile,
    )


def _megatron(**options: str) -> str:
    launch = _launch(load_adapter("megatron-lm"), **options)
    return artefacts(replace(launch, strategy=replace(LAYOUT, zero_stage=1)))["benchmark_rank.sh"]


def _run(script: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    paths = {"HOME": str(folder), "PATH": os.environ["PATH"], "OUT": str(folder / "out")}
    return subprocess.run(
        ["bash", "-c", script],
        env=paths | {"RANK": "0"} | variables,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "variable"),
    [("torchtitan-2026-08", "MODEL_CONFIG"), ("torchtitan-0.2", "MODEL_FLAVOR")],
)
def test_no_file_trains_another_model_silently(name: str, variable: str, tmp_path: Path) -> None:
    for file, text in artefacts(_launch(load_adapter(name))).items():
        assert f"# Set {variable}: " in text or file.endswith(".sh"), file
        assert f'"${variable}"' in text
        assert "llama3_8b" not in text
        assert "The trainer's own configuration defines the model" in text
    ended = _run(artefacts(_launch(load_adapter(name)))["benchmark_rank.sh"], tmp_path)
    assert ended.returncode == 2
    assert f"{variable} is not set: " in ended.stderr


def test_the_configured_model_needs_no_variable() -> None:
    for text in artefacts(_launch(load_adapter("torchtitan-2026-08"), "llama-3-8b")).values():
        assert "--config llama3_8b" in text
        assert "MODEL_CONFIG" not in text


def test_a_configuration_of_the_users_own_is_taken() -> None:
    """In a profile's `[trainer] set`, or as the adapter's `base`."""
    named = read_adapter(adapter_file(TITANS[0]), places={"--config": "my_qwen"})
    with_base = replace(load_adapter(TITANS[1]), base={"job.toml": "[model]\nflavor = 'mine'\n"})
    for adapter, configured in ((named, "--config my_qwen"), (with_base, "mine")):
        for text in artefacts(_launch(adapter)).values():
            assert configured in text
            assert "$MODEL_" not in text


def test_a_command_needs_no_options(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    echo = "{zero_stage} {gradient_accumulation_steps} {activation_checkpointing}"
    read = '[[read]]\nlog = "(?P<iteration_time_s>1)"'
    path.write_text(f'command = ["echo", "{echo}"]\n{read}\n')
    script = artefacts(_launch(read_adapter(path)))["benchmark_rank.sh"]
    ran = _run(script, tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "3 8 full\n"), ran.stderr


def test_faults_of_other_model_name_the_key(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'command = ["train"]\n[[read]]\nlog = "(?P<iteration_time_s>1)"\n'
        '[other_model]\nwhen = "layers > 3"\nset = { "--a" = "$A" }\n'
        'variables = { RANK = { meaning = "no" } }\n'
    )
    with pytest.raises(InvalidInputs) as refused:
        read_adapter(path)
    faults = {fault.field for fault in refused.value.problems}
    assert {"other_model.when", "other_model.variables.RANK"} <= faults


def test_a_trainer_that_is_not_there_is_named(tmp_path: Path) -> None:
    script = _megatron()
    ended = _run(script, tmp_path)
    assert ended.returncode == 2
    assert f"python3 in {tmp_path}/out: no module named pretrain_gpt" in ended.stderr
    assert "set TRAINER_DIR or PYTHON" in ended.stderr
    ended = _run(script, tmp_path, TRAINER_DIR=str(tmp_path / "none"))
    assert f"TRAINER_DIR: there is no {tmp_path}/none" in ended.stderr


def test_the_users_folder_and_interpreter_are_used(tmp_path: Path) -> None:
    (tmp_path / "pretrain_gpt.py").write_text("import os, sys; print(os.getcwd(), sys.argv[1:3])")
    ran = _run(_megatron(), tmp_path, TRAINER_DIR=str(tmp_path))
    assert (ran.returncode, ran.stdout) == (
        0,
        f"{tmp_path} ['--mock-data', '--tokenizer-type']\n",
    ), ran.stderr
    ran = _run(_megatron(), tmp_path, PYTHONPATH=str(tmp_path))
    assert ran.stdout.startswith(f"{tmp_path}/out "), ran.stderr
    python = tmp_path / "my python"
    python.write_text('#!/bin/bash\necho "mine: $*"\n')
    python.chmod(0o755)
    ran = _run(_megatron(), tmp_path, TRAINER_DIR=str(tmp_path), PYTHON=str(python))
    assert ran.stdout.startswith("mine: -m pretrain_gpt --mock-data")
    assert "export PYTHON=/opt/python\n" in _megatron(python="/opt/python")


def test_a_script_is_looked_for_in_the_trainers_folder(tmp_path: Path) -> None:
    adapter = replace(load_adapter("megatron-bridge"), folder=str(tmp_path / "bridge"))
    launch = replace(_launch(adapter), strategy=replace(LAYOUT, zero_stage=1))
    ended = _run(artefacts(launch)["benchmark_rank.sh"], tmp_path)
    assert ended.returncode == 2
    missing = f"there is no {tmp_path}/bridge/scripts/training/run_recipe.py"
    assert f"TRAINER_DIR: {missing}" in ended.stderr
