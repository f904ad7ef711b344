"""The recommendation's scripts, submitted to a real Slurm."""

from __future__ import annotations

import json
import sys
import time
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.adapter.catalog import adapter_file
from evaluators.adapter.reading import read_adapter
from evaluators.artefacts import Launch, artefacts
from evaluators.cluster.profile import ClusterProfile, Environment
from evaluators.trial import request_from_dict
from search_spaces.catalog import load_machine, load_model
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import MakeCluster, make_slurm
from tests.evaluators.adapter import samples
from tests.evaluators.frameworks.readers import strategy_of
from tests.evaluators.local.trials import strategy
from tests.patience import PATIENCE_S

__all__ = ["make_slurm"]

pytestmark = pytest.mark.xdist_group("slurm")

MACHINE = replace(load_machine("local"), gpus_per_node=2)
ONE_GPU = replace(MACHINE, gpus_per_node=1)
TINY = load_model("tiny")

OVER_TWO_NODES = strategy(2, 2, gradient_accumulation_steps=4, zero_stage=1, num_nodes=2)

PRETRAIN = """
import json, os, sys
names = ["RANK", "LOCAL_RANK", "LOCAL_SIZE", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "MY_OWN"]
process = {"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}}
open(f"rank-{os.environ['RANK']}.json", "w").write(json.dumps(process))
"""


def run(cluster: Cluster, folder: Path, script: str, *, limit_s: float = PATIENCE_S) -> None:
    """Submit it from `folder` and wait for its end, more often than `sbatch --wait` looks."""
    (folder / "my.sbatch").write_text(script)
    with chdir(folder):
        job = cluster.command("sbatch", "--parsable", "my.sbatch").strip()
    deadline = time.monotonic() + limit_s
    while cluster.command("squeue", "--noheader", f"--jobs={job}").strip():
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.1)
    log = "".join(path.read_text() for path in folder.glob("*.log"))
    assert "ExitCode=0:0" in cluster.command("scontrol", "show", "job", job), log


def launch(machine: Machine, strategy: Strategy, profile: ClusterProfile) -> Launch:
    return Launch(
        transformer=TINY,
        machine=machine,
        strategy=strategy,
        name="my run",
        evaluator="slurm",
        profile=profile,
    )


def test_megatron_is_started_as_every_rank(make_slurm: MakeCluster, tmp_path: Path) -> None:
    cluster = make_slurm(nodes=2, gpus=2)
    checkout, folder = tmp_path / "a checkout", tmp_path / "my runs"
    for path in (checkout, folder):
        path.mkdir()
    (checkout / "pretrain_gpt.py").write_text(PRETRAIN)
    ready = read_adapter(adapter_file("megatron-deepspeed"), folder=str(checkout))
    ready = replace(ready, needs=())  # PRETRAIN needs no module
    profile = ClusterProfile(
        name="mine",
        python=sys.executable,
        environment=Environment(variables={"MY_OWN": "it's mine"}),
        adapter=ready,
    )
    files = artefacts(launch(MACHINE, OVER_TWO_NODES, profile))
    run(cluster, folder, files["benchmark.sbatch"])
    ranks = [json.loads((checkout / f"rank-{rank}.json").read_text()) for rank in range(4)]
    assert [t["env"]["LOCAL_RANK"] for t in ranks] == ["0", "1", "0", "1"]
    assert {t["env"]["LOCAL_SIZE"] for t in ranks} == {"2"}
    assert {t["env"]["WORLD_SIZE"] for t in ranks} == {"4"}
    assert {t["env"]["MY_OWN"] for t in ranks} == {"it's mine"}
    assert len({(t["env"]["MASTER_ADDR"], t["env"]["MASTER_PORT"]) for t in ranks}) == 1
    for t in ranks:
        assert strategy_of(t["argv"], MACHINE, num_nodes=2) == OVER_TWO_NODES


def test_a_trainer_of_an_adapter_is_started_as_every_rank(
    make_slurm: MakeCluster, tmp_path: Path
) -> None:
    """By what the trials' own files hold."""
    cluster = make_slurm(nodes=2, gpus=2)
    folder, own = tmp_path / "my runs", tmp_path / "own files"
    for path in (folder, own):
        path.mkdir()
    profile = ClusterProfile(
        name="mine",
        adapter=samples.my_script(own),
        python=sys.executable,
        environment=Environment(variables={"MIX": "bf16"}),  # the adapter's own wins
    )
    strategy = samples.strategy(num_nodes=2, tensor_parallel=2, gradient_accumulation_steps=3)
    job = artefacts(launch(samples.MACHINE, strategy, profile))["benchmark.sbatch"]
    run(cluster, folder, job)
    (log,) = (path.read_text() for path in folder.glob("*.log"))
    assert "4 ranks: 2 x 1, zero 0, fp32, accumulating 3" in log
    assert "[20/20] loss=" in log
    (written,) = folder.glob("my-run-*/conf.json")
    assert json.loads(written.read_text())["accumulate"] == 3


def test_a_training_is_checked_before_its_ranks_start(
    make_slurm: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_slurm(nodes=2, gpus=2)
    checkout, folder = tmp_path / "a checkout", tmp_path / "my runs"
    for path in (checkout, folder):
        path.mkdir()
    (checkout / "pretrain_gpt.py").write_text(PRETRAIN)
    ready = read_adapter(adapter_file("megatron-deepspeed"), folder=str(checkout))
    ready = replace(ready, needs=())  # PRETRAIN needs no module
    profile = ClusterProfile(name="mine", python=sys.executable, adapter=ready)
    job = artefacts(launch(MACHINE, OVER_TWO_NODES, profile))["train.sbatch"]
    with pytest.raises(AssertionError, match="DATA is not set: tokenised data"):
        run(cluster, folder, job)
    assert not list(checkout.glob("rank-*.json"))
    for file in ("my data.bin", "my data.idx", "tokenizer", "saved"):
        (tmp_path / file).touch()
    for name, file in (("DATA", "my data"), ("TOKENIZER", "tokenizer"), ("SAVE", "saved")):
        monkeypatch.setenv(name, str(tmp_path / file))
    monkeypatch.setenv("TRAIN_ITERS", "1000")
    monkeypatch.setenv("LR", "0.0003")
    run(cluster, folder, job)
    commands = [
        json.loads((checkout / f"rank-{rank}.json").read_text())["argv"] for rank in range(4)
    ]
    for argv in commands:
        assert argv[argv.index("--data-path") + 1] == str(tmp_path / "my data")
        assert argv[argv.index("--load") + 1] == str(tmp_path / "saved")
        assert argv[argv.index("--tensor-model-parallel-size") + 1] == "2"


def test_the_bundled_trainer_is_started_as_every_rank(
    make_slurm: MakeCluster, tmp_path: Path
) -> None:
    cluster = make_slurm(nodes=2, gpus=1)
    folder, python = tmp_path / "my runs", tmp_path / "python"
    folder.mkdir()
    python.write_text('#!/bin/bash\necho "$RANK/$WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $*"\n')
    python.chmod(0o755)
    strategy = replace(OVER_TWO_NODES, pipeline_parallel=1)
    profile = ClusterProfile(name="mine", python=str(python))
    files = artefacts(launch(ONE_GPU, strategy, profile))
    run(cluster, folder, files["benchmark.sbatch"])
    (own,) = (path for path in folder.glob("my-run-*") if path.is_dir())
    document = json.loads((own / "request.json").read_text()) | {"directory": str(own)}
    assert request_from_dict(document).strategy == strategy
    lines = sorted(line.split() for line in (own / "trial.log").read_text().splitlines())
    assert [rank for rank, *_ in lines] == ["0/2", "1/2"]
    assert lines[0][1:] == lines[1][1:]
    assert lines[0][2:] == ["-m", "evaluators.trainer", "--request", "request.json"]
