"""The commands of a trial with Megatron-DeepSpeed, run by a bash without a Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from evaluators.cluster.profile import ClusterProfile, Megatron
from evaluators.program import Launcher
from evaluators.program.megatron_deepspeed import MegatronProgram
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy
from tests.evaluators.frameworks.readers import megatron_parser, strategy_of
from tests.evaluators.frameworks.strategies import BASE, STRATEGIES
from tests.patience import TRAINING_S

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")
SCRIPTS = {"main": "pretrain_gpt.py", "ornl": "pretrain_gpt_deepspeed.py"}

SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "16", "SLURM_LOCALID": "1"}
SLURM |= {"SLURM_TASKS_PER_NODE": "8(x2)", "SLURMD_NODENAME": "n01"}

PRETRAIN = """
import argparse, json, sys
import beside_it
if beside_it.READS_UNSET and "--deepspeed" not in sys.argv:  # as the main line does
    argparse.Namespace().deepspeed_config_dict
print(json.dumps(sys.argv[1:]))
"""


def trial(folder: Path, strategy: Strategy, *accumulations: int) -> TrialRequest:
    return TrialRequest(
        token="t",
        transformer=GPT,
        machine=FRONTIER,
        strategy=strategy,
        protocol=TrialProtocol(accumulations=accumulations),
        directory=folder,
    )


def checkout(root: Path, variant: Literal["main", "ornl"] = "main", **values: Any) -> Megatron:
    path = root / "it's a checkout"
    (path / "megatron").mkdir(parents=True)
    (path / SCRIPTS[variant]).write_text(PRETRAIN)
    (path / "beside_it.py").write_text(f"READS_UNSET = {variant == 'main'}")
    return Megatron(path=str(path), variant=variant, **values)


def commands(request: TrialRequest, megatron: Megatron) -> str:
    """The bash of a trial whose tasks are started here rather than by srun."""
    program = MegatronProgram(
        ClusterProfile(
            name="mine",
            program="megatron-deepspeed",
            python=sys.executable,
            megatron=replace(megatron, data_path="/the data"),
        )
    )
    folder = request.directory / "a folder"
    folder.mkdir(exist_ok=True)
    for name, text in program.files(request, folder).items():
        (folder / name).write_text(text)
    return program.commands(request, folder, Launcher(srun=("env",)))


def printed(request: TrialRequest, megatron: Megatron) -> list[list[str]]:
    """What each run's command hands to the entry script, as bash runs it in the trial's folder."""
    done = subprocess.run(
        ["/bin/bash", "-c", commands(request, megatron)],
        cwd=request.directory / "a folder",
        env=SLURM | {"MASTER_ADDR": "127.0.0.1", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=TRAINING_S,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("variant", ["main", "ornl"])
@pytest.mark.parametrize("name", ["the defaults", "interleaved"])
def test_a_trials_command_trains_its_strategy(
    name: str, variant: Literal["main", "ornl"], tmp_path: Path
) -> None:
    asked = STRATEGIES[name]
    stages = asked.pipeline_parallel
    request = trial(tmp_path, asked, stages, 2 * stages)
    (argv,) = printed(request, checkout(tmp_path, variant))
    found = strategy_of(argv, FRONTIER, num_nodes=asked.num_nodes, variant=variant)
    assert found == asked.with_accumulation(2 * stages)
    args = megatron_parser(variant).parse_args(argv)
    assert variant == "main" or args.master_addr == "127.0.0.1"
    if args.deepspeed:
        config = json.loads(Path(args.deepspeed_config).read_text())
        assert config["gradient_accumulation_steps"] == stages
        assert config["train_batch_size"] == int(args.rampup_batch_size[0])
    else:
        assert args.deepspeed_config is None


def test_it_reads_its_data_and_keeps_its_index_files_to_itself(tmp_path: Path) -> None:
    (argv,) = printed(trial(tmp_path, BASE, 4, 8), checkout(tmp_path))
    args = megatron_parser().parse_args(argv)
    assert (args.data_path, args.split, args.num_workers) == (["/the data"], "100,0,0", 0)
    assert Path(args.data_cache_path) == tmp_path / "a folder" / "index-cache"
    assert (args.tokenizer_type, args.vocab_size) == ("NullTokenizer", GPT.vocab_size - 1)
    assert args.seed > 0  # Megatron refuses anything else


def test_a_lock_of_a_killed_build_blocks_no_later_trial(tmp_path: Path) -> None:
    """Extensions are built in a folder of the service's, where a build that is alive goes on."""
    dead, alive = (tmp_path.parent / "torch-extensions" / "mine" / name for name in ("a", "b"))
    for build in (dead, alive):
        build.mkdir(parents=True)
        (build / "lock").touch()
        (build / "main.o").touch()
    long_ago = time.time() - 3600
    for path in (*dead.iterdir(), dead, alive / "lock"):
        os.utime(path, (long_ago, long_ago))
    printed(trial(tmp_path, BASE, 4, 8), checkout(tmp_path))
    assert [path.name for path in dead.iterdir()] == ["main.o"]
    assert (alive / "lock").exists()


def test_a_tokenizer_of_ones_own_brings_its_files(tmp_path: Path) -> None:
    own: dict[str, Any] = {
        "tokenizer_type": "GPT2BPETokenizer",
        "vocab_file": "a v",
        "merge_file": "a m",
    }
    (argv,) = printed(trial(tmp_path, BASE, 4, 8), checkout(tmp_path, **own))
    args = megatron_parser().parse_args(argv)
    assert (args.tokenizer_type, args.vocab_file, args.merge_file) == tuple(own.values())
    assert args.vocab_size is None


def test_the_profiles_arguments_win(tmp_path: Path) -> None:
    own = ("--lr", "3.0e-4", "--save", "it's $(touch pwned)")
    (argv,) = printed(trial(tmp_path, BASE, 4, 8), checkout(tmp_path, arguments=own))
    args = megatron_parser().parse_args(argv)
    assert (args.lr, args.save) == (3.0e-4, "it's $(touch pwned)")
    assert not list(tmp_path.rglob("pwned"))


def test_more_than_two_gas_values_take_several_runs(tmp_path: Path) -> None:
    request = trial(tmp_path, BASE, 4, 8, 16)
    first, second = printed(request, checkout(tmp_path))
    files = [megatron_parser().parse_args(argv).deepspeed_config for argv in (first, second)]
    steps = [json.loads(Path(f).read_text())["gradient_accumulation_steps"] for f in files]
    assert steps == [4, 16]


def test_other_seeds_are_other_seeds(tmp_path: Path) -> None:
    megatron, first = checkout(tmp_path), trial(tmp_path, BASE, 4, 8)
    assert commands(first, megatron) != commands(replace(first, seed=1), megatron)
