from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.choices import EvaluatorName, TrialState
from evaluators.adapter.catalog import load_adapter
from evaluators.artefacts import (
    Launch,
    artefact_names,
    artefacts,
    launch_script,
    trainer_artefacts,
)
from evaluators.artefacts.trainer import benchmark_script
from evaluators.cluster.profile import ClusterProfile
from evaluators.trial import TrialOutcome, request_from_dict
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.evaluators.adapter.samples import my_script
from tests.evaluators.frameworks.strategies import BASE, STRATEGIES
from tests.evaluators.local.trials import request as trial
from tests.evaluators.local.trials import strategy
from tests.patience import TRAINING_S
from tests.requirement import require

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
TINY = load_model("tiny")

SMALL = strategy(tensor_parallel=2, zero_stage=1)


def run(script: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = directory / "benchmark.sh"
    path.write_text(script)
    return subprocess.run(
        ["/bin/bash", str(path)],
        env=os.environ | environment,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TRAINING_S,
        check=False,
    )


def launch(strategy: Strategy = STRATEGIES["the defaults"], **others: Any) -> Launch:
    """A launch after a simulated campaign on Frontier."""
    simulated = Launch(
        transformer=GPT, machine=FRONTIER, strategy=strategy, name="x", evaluator="simulated"
    )
    return replace(simulated, **others)


WITH_TRAINER = ["benchmark.sbatch", "benchmark_rank.sh", "train.sbatch", "train_rank.sh"]


def test_which_files_there_are() -> None:
    """Those of the campaign's trainer; after a simulation, of the first that can train."""
    here = launch(SMALL, transformer=TINY, machine=load_machine("local"), evaluator="local")
    there = launch(profile=ClusterProfile(name="mine"), evaluator="slurm")
    cases = ((launch(), WITH_TRAINER), (here, ["benchmark.sh"]), (there, ["benchmark.sbatch"]))
    for subject, names in cases:
        assert artefact_names(subject) == list(artefacts(subject)) == names


def test_without_a_trainer_of_the_strategy_there_are_no_files() -> None:
    assert artefact_names(launch(replace(BASE, zero_stage=2))) == []


def test_megatron_fsdp_starts_without_demands_of_other_engines() -> None:
    def limits(zero_stage: int) -> list[str]:
        subject = launch(replace(BASE, pipeline_parallel=1, zero_stage=zero_stage))
        lines = trainer_artefacts(subject, "megatron-lm")["benchmark_rank.sh"].splitlines()
        return [line for line in lines if line.startswith("export CUDA_DEVICE_MAX_CONNECTIONS")]

    assert limits(1) == ["export CUDA_DEVICE_MAX_CONNECTIONS=1"]
    assert limits(3) == ["export CUDA_DEVICE_MAX_CONNECTIONS=8"]


def test_a_campaign_of_an_adapter_has_its_own_trainers_files(tmp_path: Path) -> None:
    """Without `[train]` in the adapter, nothing says how it trains on data."""
    here = launch(
        SMALL,
        transformer=TINY,
        machine=load_machine("local"),
        profile=ClusterProfile(name="mine", adapter=my_script(tmp_path)),
    )
    of: dict[EvaluatorName, list[str]] = {
        "slurm": ["benchmark.sbatch", "benchmark_rank.sh"],
        "local": ["benchmark.sh", "benchmark_rank.sh"],
        "ray": ["benchmark_rank.sh"],
    }
    for evaluator, own in of.items():
        there = replace(here, evaluator=evaluator)
        assert artefact_names(there) == own
        script = launch_script(there, artefact_names(there))
        assert script
        assert script.file == own[0]
        assert bool(script.needs) == (evaluator == "ray")
        assert "nothing is trained" in script.remark


def test_the_head_names_only_a_cluster_profile() -> None:
    adapter = load_adapter("megatron-lm")
    bare = launch(profile=ClusterProfile(name="local", adapter=adapter, python="/opt/python"))
    described = ClusterProfile(name="mine", description="64 nodes")
    mine = replace(bare, profile=replace(described, adapter=adapter))
    assert "# For no cluster profile: " in artefacts(bare)["train.sbatch"]
    assert "cluster profile local" not in artefacts(bare)["train.sbatch"]
    assert "# For the cluster profile mine: 64 nodes\n" in artefacts(mine)["train.sbatch"]


@pytest.mark.parametrize("file", WITH_TRAINER)
def test_the_head_says_what_the_file_is_for(file: str) -> None:
    subject = launch(campaign="7, mine", figures="1.2 s per iteration, measured by trial 3")
    head, _, _ = artefacts(subject)[file].partition("set -euo pipefail")
    purpose = "repeats the trial" if file.startswith("benchmark") else "trains the model"
    for line in (
        f"# Model: {GPT.name}, ",
        f"# Machine: {FRONTIER.name}, ",
        f"# Layout: {subject.strategy.short()}, global batch ",
        "# Figures: 1.2 s per iteration, measured by trial 3, for a trainer that was not named; "
        "not for megatron-lm\n",
        "# Campaign: 7, mine\n",
        purpose,
    ):
        assert line in head


def test_the_script_hands_the_trainer_its_request(tmp_path: Path) -> None:
    python = tmp_path / "a python"
    python.write_text('#!/bin/bash\necho "$PWD: $*"\n')
    python.chmod(0o755)
    hostile = replace(TINY, name="it's $(touch pwned)\nJSON\ntouch pwned")
    subject = launch(SMALL, transformer=hostile, name="my run; $(touch pwned)")
    script = benchmark_script(subject, python=str(python))
    done = run(script, tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert folder.name.startswith("my-run-touch-pwned-2")
    assert f"{folder}: -m evaluators.trainer --request request.json" in done.stdout
    data = json.loads((folder / "request.json").read_text())
    request = request_from_dict(data | {"directory": str(folder)})
    assert request.transformer == hostile
    assert request.machine == FRONTIER
    assert request.strategy == SMALL
    assert request.protocol.accumulations == (2,)
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("file", ["benchmark.sh", "benchmark.sbatch"])
def test_the_trainer_runs_what_was_measured(tmp_path: Path, file: str) -> None:
    """Its configuration of DeepSpeed follows from these alone, in trials and launches alike."""
    measured = trial(tmp_path / "trials" / "t", SMALL, ranks=8)
    subject = launch(
        SMALL,
        transformer=measured.transformer,
        machine=measured.machine,
        evaluator="local",
        profile=ClusterProfile(name="mine"),
    )
    text = artefacts(subject)[file].split("<<'JSON'\n")[1].split("\nJSON\n")[0]
    launched = request_from_dict(json.loads(text) | {"directory": str(tmp_path)})
    free = {"token": "", "directory": tmp_path, "protocol": measured.protocol}
    assert replace(launched, **free) == replace(measured, **free)  # type: ignore[arg-type]
    assert launched.protocol.accumulations == (SMALL.gradient_accumulation_steps,)


def test_the_users_python_and_folder_win(tmp_path: Path) -> None:
    script = benchmark_script(launch(SMALL, transformer=TINY), python="/no/such/python")
    folder = tmp_path / "my own folder"
    done = run(script, tmp_path, PYTHON="echo", RUN_DIR=str(folder))
    assert done.returncode == 0, done.stderr
    assert (folder / "request.json").is_file()


def test_the_script_trains_on_this_machine(tmp_path: Path) -> None:
    trials = [importlib.util.find_spec(name) for name in ("torch", "deepspeed")]
    require(all(trials), "torch and deepspeed")
    machine = replace(load_machine("local"), gpus_per_node=2)
    files = artefacts(launch(SMALL, transformer=TINY, machine=machine, evaluator="local"))
    folder = tmp_path / "run here"
    done = run(files["benchmark.sh"], tmp_path, RUN_DIR=str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    outcome = TrialOutcome.from_dict(json.loads((folder / "result.json").read_text()))
    assert outcome.status is TrialState.OK
    assert not outcome.simulated
    assert len(outcome.peak_memory_gib) == 2
    assert len(outcome.measurements[0].iteration_times_s) == 10
    assert outcome.loss is not None
    assert "iteration 10" in done.stdout
    assert "tokens/s" in done.stdout
    assert (folder / "trial.log").stat().st_size > 0
