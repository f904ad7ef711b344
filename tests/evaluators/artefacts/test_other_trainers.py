from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrainerName
from evaluators.adapter.catalog import adapter_file
from evaluators.adapter.reading import read_adapter
from evaluators.artefacts import Launch, trainer_artefacts, trainer_offers
from evaluators.artefacts.other_trainers import OTHER_TRAINERS, ready_adapter
from evaluators.cluster.profile import ClusterProfile
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput
from search_spaces.program import FEATURE_WORDS
from search_spaces.strategy import Strategy
from tests.evaluators.artefacts.test_artefacts import WITH_TRAINER

ON_16_GPUS = Strategy(
    tensor_parallel=4,
    pipeline_parallel=2,
    micro_batch_size=2,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=2,
)
SHARDED = replace(ON_16_GPUS, zero_stage=3)
REPLICAS = replace(ON_16_GPUS, tensor_parallel=1, pipeline_parallel=1)
SIMULATED = Launch(
    transformer=load_model("llama-3-8b"),
    machine=load_machine("dgx-h100"),
    strategy=ON_16_GPUS,
    name="x",
    evaluator="simulated",
)

MEGATRON = (
    "--tensor-model-parallel-size 4",
    "--pipeline-model-parallel-size 2",
    "--micro-batch-size 2",
    "--global-batch-size 32",
)
BRIDGE = (
    "model.tensor_model_parallel_size=4",
    "model.pipeline_model_parallel_size=2",
    "train.micro_batch_size=2",
    "train.global_batch_size=32",
)
TORCHTITAN = (
    "--parallelism.tensor_parallel_degree 4",
    "--parallelism.pipeline_parallel_degree 2",
    f"--training.num_tokens_per_microbatch_per_dp_rank {2 * 8192}",
    f"--training.num_tokens_per_train_step {32 * 8192}",
)
TRANSFORMERS = ("--per_device_train_batch_size 2", "--gradient_accumulation_steps 8")


@pytest.mark.parametrize(
    ("trainer", "strategy", "words"),
    [
        ("megatron-bridge", ON_16_GPUS, BRIDGE),
        ("megatron-lm", ON_16_GPUS, MEGATRON),
        ("megatron-deepspeed", ON_16_GPUS, MEGATRON),
        ("torchtitan", SHARDED, TORCHTITAN),
        ("transformers", REPLICAS, TRANSFORMERS),
    ],
)
def test_the_files_of_a_trainer_hold_the_layout(
    trainer: TrainerName, strategy: Strategy, words: tuple[str, ...]
) -> None:
    files = trainer_artefacts(replace(SIMULATED, strategy=strategy), trainer)
    assert list(files) == WITH_TRAINER
    assert "#SBATCH --nodes=2" in files["train.sbatch"]
    for text in files.values():
        assert [word for word in words if word not in text] == []
        assert str(Path.home() / "torchtitan") not in text
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_on_h100s_megatron_bridge_comes_first() -> None:
    offered = [each.name for each in trainer_offers(SIMULATED)]
    assert offered[0] == "megatron-bridge"
    elsewhere = trainer_offers(replace(SIMULATED, machine=load_machine("frontier")))
    assert elsewhere[0].name == "megatron-lm"
    assert {each.name for each in elsewhere} == set(offered)


GPT = replace(SIMULATED, transformer=load_model("gpt-22b"), strategy=SHARDED)


@pytest.mark.parametrize(
    ("launch", "trainer", "reason"),
    [
        (SIMULATED, "torchtitan", "it has no ZeRO 1"),
        (SIMULATED, "transformers", "no tensor_parallel: its value is always 1"),
        (GPT, "torchtitan", "gpt-22b is none"),
        (GPT, "megatron-bridge", "not written for pipelines"),
    ],
)
def test_a_trainer_that_cannot_train_the_layout_is_refused(
    launch: Launch, trainer: TrainerName, reason: str
) -> None:
    offers = {each.name: each for each in trainer_offers(launch)}
    assert not offers[trainer].supported
    assert reason in offers[trainer].reason
    with pytest.raises(InvalidInput) as refused:
        trainer_artefacts(launch, trainer)
    assert (refused.value.field, refused.value.reason) == ("trainer", offers[trainer].reason)
    usable = [each.name for each in offers.values() if each.supported]
    assert refused.value.valid == ", ".join(usable)


def test_the_job_follows_the_profile_whatever_ran_the_trials() -> None:
    """Its interpreter is never the one of this service."""
    ready = read_adapter(adapter_file("megatron-deepspeed"), folder="/apps/Megatron-DeepSpeed")
    profile = ClusterProfile(name="mine", adapter=ready)
    for python in ("", "/apps/python"):
        launch = replace(SIMULATED, evaluator="slurm", profile=replace(profile, python=python))
        job = trainer_artefacts(launch, "megatron-lm")["train.sbatch"]
        assert f"export PYTHON={python or 'python3'}\n" in job
        assert 'exec "$PYTHON" -m pretrain_gpt' in job
        assert "/apps/Megatron-DeepSpeed" not in job


def test_a_rank_starts_in_the_home_of_the_user_who_runs_it(tmp_path: Path) -> None:
    qwen = load_model("qwen3-8b")
    launch = replace(SIMULATED, transformer=qwen, strategy=SHARDED, name="mine\ntouch ~/made")
    script = trainer_artefacts(launch, "torchtitan")["benchmark_rank.sh"]
    (tmp_path / "torchtitan").mkdir()
    python = tmp_path / "python3"
    python.write_text('#!/bin/bash\n[[ "$1" == -c ]] || echo "$PWD $*"\n')
    python.chmod(0o755)

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        paths = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(
            ["bash", "-c", script],
            env=paths | {"OUT": str(tmp_path / "out"), "RANK": "0"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )

    model = {"MODEL_MODULE": "qwen3", "MODEL_CONFIG": "qwen3_8b"}
    started = run(**model, EXTRA_ARGS="--a 1  --b=*").stdout
    assert started.startswith(f"{tmp_path}/torchtitan -m torchtitan.train --module qwen3")
    assert "--config qwen3_8b" in started
    assert started.endswith(" --a 1 --b=*\n")
    assert not (tmp_path / "made").exists(), "a name stays a comment"
    unset = run()
    assert unset.returncode == 2
    assert "MODEL_CONFIG is not set: its configuration of the model" in unset.stderr


@pytest.mark.parametrize("name", ["gpt-oss-120b", "deepseek-v3"])
def test_no_file_trains_a_model_without_some_of_its_layers(name: str) -> None:
    model = load_model(name)
    launch = replace(SIMULATED, transformer=model, strategy=REPLICAS)
    for offer in trainer_offers(launch):
        adapter = ready_adapter(OTHER_TRAINERS[offer.name].adapter)
        lacked = [FEATURE_WORDS[each] for each in model.features if each not in adapter.trains]
        if lacked:
            assert not offer.supported
            assert f"is not known to train {lacked[0]}" in offer.reason
