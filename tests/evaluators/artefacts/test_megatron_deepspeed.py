from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.artefacts.job import Launch
from evaluators.artefacts.megatron_deepspeed import sbatch_script
from evaluators.cluster.profile import (
    ClusterProfile,
    Container,
    Environment,
    Megatron,
    Scheduling,
)
from evaluators.frameworks.deepspeed import ds_config_json
from evaluators.frameworks.megatron_deepspeed.arguments import FLASH_ATTENTION_2
from evaluators.program import Launcher
from evaluators.program.support import program_of
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.catalog import load_machine, load_model, machine_names
from search_spaces.machine import Machine
from tests.evaluators.frameworks.readers import directive, megatron_parser, strategy_of
from tests.evaluators.frameworks.strategies import BASE, STRATEGIES
from tests.patience import TRAINING_S

FRONTIER = load_machine("frontier")
GPT = load_model("gpt-22b")

SRUN = r"""#!/bin/bash
echo "srun $*" >&2
while [[ "$1" == --* ]]; do shift; done
export SLURM_PROCID=3 SLURM_LOCALID=3 SLURM_NTASKS=16
exec "$@"
"""

PRETRAIN = """
import argparse, json, os, sys
import beside_it
if "--deepspeed" not in sys.argv:  # as Megatron-DeepSpeed's does
    argparse.Namespace().deepspeed_config_dict
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_NET_GDR_LEVEL", "FI_MR_CACHE_MONITOR"]
print(json.dumps({"argv": sys.argv[1:], "env": {n: os.environ.get(n) for n in names}}))
"""


def script(
    strategy: str = "the defaults",
    *,
    machine: Machine = FRONTIER,
    profile: ClusterProfile | None = None,
    name: str = "x",
) -> str:
    launch = Launch(
        transformer=GPT,
        machine=machine,
        strategy=STRATEGIES[strategy],
        profile=profile,
        name=name,
        evaluator="slurm",
    )
    return sbatch_script(launch)


class Cluster:
    """A folder with blanks in its name that stands for a cluster: its srun runs one task here."""

    def __init__(self, root: Path) -> None:
        self.root = root / "a place with blanks"
        self.commands = self.root / "bin"
        self.megatron = self.root / "Megatron DeepSpeed"
        self.submitted_from = self.root / "my runs"
        for folder in (self.commands, self.megatron / "megatron", self.submitted_from):
            folder.mkdir(parents=True)
        self.command("srun", SRUN)
        self.command("scontrol", "#!/bin/bash\nprintf 'node17\\nnode18\\n'\n")
        (self.megatron / "pretrain_gpt.py").write_text(PRETRAIN)
        (self.megatron / "beside_it.py").touch()
        self.environment = {
            "PATH": f"{self.commands}:/usr/bin:/bin",
            "PYTHON": sys.executable,
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[17-18]",
            "SLURM_SUBMIT_DIR": str(self.submitted_from),
            "MEGATRON_DIR": str(self.megatron),
            "DATA_PATH": str(self.root / "the data set"),
            "TOKENIZER_TYPE": "HFTokenizer",
            "TOKENIZER_MODEL": str(self.root / "a tokenizer"),
        }

    def command(self, name: str, text: str) -> None:
        path = self.commands / name
        path.write_text(text)
        path.chmod(0o755)

    def run(self, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        # From another folder than the submitting one, as Slurm runs a copy of the script.
        path = self.root / "slurm_script"
        path.write_text(text)
        return subprocess.run(
            ["/bin/bash", str(path)],
            env=self.environment | environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=TRAINING_S,
            check=False,
        )


def argv_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The words that the entry script was started with."""
    assert done.returncode == 0, done.stderr
    argv: list[str] = json.loads(done.stdout)["argv"]
    return argv


def arguments_of(done: subprocess.CompletedProcess[str]) -> Namespace:
    return megatron_parser().parse_args(argv_of(done))


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@pytest.mark.parametrize("machine", machine_names())
def test_the_script_is_valid_bash_and_asks_for_the_right_nodes(machine: str) -> None:
    text = script(machine=load_machine(machine))
    subprocess.run(["bash", "-n"], input=text, text=True, check=True, timeout=TRAINING_S)
    gpus = str(load_machine(machine).gpus_per_node)
    assert directive(text, "nodes") == str(BASE.num_nodes)
    assert directive(text, "ntasks-per-node") == directive(text, "gpus-per-node") == gpus
    assert directive(text, "time")


@pytest.mark.parametrize("strategy", ["ZeRO-2 with tensor parallelism", "interleaved"])
def test_the_launch_trains_the_strategy_it_was_rendered_from(
    strategy: str, cluster: Cluster
) -> None:
    asked = STRATEGIES[strategy]
    done = cluster.run(script(strategy))
    argv = argv_of(done)
    assert strategy_of(argv, FRONTIER, num_nodes=asked.num_nodes) == asked
    args = megatron_parser().parse_args(argv)
    assert args.data_path == [str(cluster.root / "the data set")]
    assert args.tokenizer_model == str(cluster.root / "a tokenizer")
    if args.deepspeed:
        written = json.loads(Path(args.deepspeed_config).read_text())
        assert written == json.loads(ds_config_json(GPT, FRONTIER, asked))
        assert Path(args.deepspeed_config).parent == cluster.submitted_from
    else:
        assert args.deepspeed_config is None


def test_a_task_learns_its_rank_and_the_network_settings(cluster: Cluster) -> None:
    environment = json.loads(cluster.run(script()).stdout)["env"]
    assert int(environment["MASTER_PORT"]) >= 1024
    assert environment == {
        "RANK": "3",
        "LOCAL_RANK": "3",
        "WORLD_SIZE": "16",
        "MASTER_ADDR": "node17",
        "MASTER_PORT": environment["MASTER_PORT"],
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "NCCL_NET_GDR_LEVEL": "3",
        "FI_MR_CACHE_MONITOR": "userfaultfd",
    }


@pytest.mark.parametrize(
    ("variable", "visible", "local_rank"),
    [("ROCR_VISIBLE_DEVICES", "5", "0"), ("CUDA_VISIBLE_DEVICES", "0,1,2,3", "3")],
)
def test_a_task_bound_to_one_gpu_uses_device_0(
    variable: str, visible: str, local_rank: str, cluster: Cluster
) -> None:
    done = cluster.run(script(), **{variable: visible})
    assert json.loads(done.stdout)["env"]["LOCAL_RANK"] == local_rank


def test_what_the_user_sets_wins(cluster: Cluster) -> None:
    done = cluster.run(
        script(),
        NCCL_NET_GDR_LEVEL="1",
        CHECKPOINT_DIR=str(cluster.root / "check points"),
        EXTRA_ARGS="--lr 3.0e-4 --hidden-dropout 0.1",
        TRAIN_ITERS="7",
    )
    answer = json.loads(done.stdout)
    args = megatron_parser().parse_args(answer["argv"])
    assert answer["env"]["NCCL_NET_GDR_LEVEL"] == "1"
    assert "your own, instead of the profile's: NCCL_NET_GDR_LEVEL=1" in done.stderr
    assert args.save == args.load == str(cluster.root / "check points")
    assert (args.lr, args.hidden_dropout, args.train_iters) == (3.0e-4, 0.1, 7)


def test_frontier_binds_each_task_to_its_closest_gpu(cluster: Cluster) -> None:
    srun = cluster.run(script()).stderr
    for option in ("--nodes=2", "--ntasks-per-node=8", "--gpus-per-node=8", "--gpu-bind=closest"):
        assert option in srun


def test_the_null_tokenizer_yields_the_vocabulary_without_a_file(
    cluster: Cluster,
) -> None:
    done = cluster.run(script(), TOKENIZER_TYPE="NullTokenizer", TOKENIZER_MODEL="")
    args = arguments_of(done)
    assert args.vocab_size == GPT.vocab_size - 1


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"DATA_PATH": ""}, "DATA_PATH: path of an indexed dataset"),
        ({"MEGATRON_DIR": ""}, "MEGATRON_DIR: path of a clone"),
        ({"MEGATRON_DIR": "/nowhere"}, "no pretrain_gpt.py in /nowhere"),
        ({"TOKENIZER_TYPE": ""}, "TOKENIZER_TYPE: one of GPT2BPETokenizer"),
        ({"TOKENIZER_MODEL": ""}, "TOKENIZER_MODEL: the model of HFTokenizer"),
        ({"TOKENIZER_TYPE": "GPT2BPETokenizer"}, "MERGE_FILE: the GPT-2 tokenizer's merges"),
        ({"SLURM_JOB_ID": ""}, "submit this file with sbatch"),
        ({"PYTHON": "/no/python"}, "PYTHON: there is no /no/python"),
    ],
)
def test_what_is_missing_is_said_before_anything_starts(
    environment: dict[str, str], said: str, cluster: Cluster
) -> None:
    done = cluster.run(script(), **environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert "srun --" not in done.stderr
    assert list(cluster.submitted_from.iterdir()) == []


def test_without_slurm_it_says_so_and_names_all_that_is_missing(cluster: Cluster) -> None:
    (cluster.commands / "srun").unlink()
    done = cluster.run(script(), PATH=str(cluster.commands), DATA_PATH="", SLURM_JOB_ID="")
    assert done.returncode == 2
    assert "Slurm's client commands are not on the PATH" in done.stderr
    assert len(re.findall(r"^  \S", done.stderr, flags=re.MULTILINE)) == 3


def test_a_hostile_name_stays_a_comment(cluster: Cluster) -> None:
    text = script(name="my run\ntouch pwned; $(touch pwned) `touch pwned`")
    assert directive(text, "job-name") == "my-run-touch-pwned-touch-pwned-touch-pwned"
    assert cluster.run(text).returncode == 0
    assert not list(cluster.root.rglob("pwned"))


def test_a_machine_without_slurm_is_told_apart() -> None:
    assert "run by PBS" in script(machine=load_machine("polaris"))
    assert "run by" not in script()


def profile_of(cluster: Cluster, **values: Any) -> ClusterProfile:
    """One with all that a launch needs."""
    megatron = Megatron(path=str(cluster.megatron), data_path=str(cluster.root / "own data"))
    own: dict[str, Any] = {"name": "mine", "python": sys.executable, "megatron": megatron}
    return ClusterProfile(**own | values)


NOTHING_SET = dict.fromkeys(
    ("MEGATRON_DIR", "DATA_PATH", "TOKENIZER_TYPE", "TOKENIZER_MODEL", "PYTHON"), ""
)


def test_with_a_profile_it_runs_as_it_is(cluster: Cluster) -> None:
    done = cluster.run(script(profile=profile_of(cluster)), **NOTHING_SET)
    args = arguments_of(done)
    assert args.data_path == [str(cluster.root / "own data")]
    assert (args.tokenizer_type, args.vocab_size) == ("NullTokenizer", GPT.vocab_size - 1)


OF_THE_SCHEDULE = {"train_iters", "save_interval", "seed", "data_cache_path", "deepspeed_config"}
"""Options that may differ between a trial and its launch: none changes an iteration's time."""


@pytest.mark.parametrize("strategy", ["the defaults", "ZeRO-0 in fp32", "interleaved"])
def test_what_is_launched_is_what_was_measured(cluster: Cluster, strategy: str) -> None:
    """A trial at the strategy's own batch and the launch hand the program the same settings."""
    asked = STRATEGIES[strategy]
    megatron = Megatron(
        path=str(cluster.megatron),
        data_path=str(cluster.root / "own data"),
        arguments=("--num-workers", "2", "--lr", "3.0e-4"),
    )
    profile = profile_of(cluster, program="megatron-deepspeed", megatron=megatron)
    trial = TrialRequest(
        token="t",
        transformer=GPT,
        machine=FRONTIER,
        strategy=asked,
        protocol=TrialProtocol(accumulations=(asked.gradient_accumulation_steps,)),
        directory=cluster.root / "trials" / "t",
    )
    program, attempt = program_of(profile), trial.directory / "attempt-1"
    attempt.mkdir(parents=True)
    for name, text in program.files(trial, attempt).items():
        (attempt / name).write_text(text)
    commands = program.commands(trial, attempt, Launcher(srun=("srun",)))
    measured = vars(arguments_of(cluster.run(f"cd {shlex.quote(str(attempt))}\n{commands}")))
    launched = vars(arguments_of(cluster.run(script(strategy, profile=profile), **NOTHING_SET)))
    differing = {name for name in measured if measured[name] != launched[name]}
    assert differing <= OF_THE_SCHEDULE
    assert (launched["num_workers"], launched["lr"]) == (2, 3.0e-4)
    if measured["deepspeed"]:
        configurations = [Path(run["deepspeed_config"]) for run in (measured, launched)]
        assert configurations[0].read_text() == configurations[1].read_text()


def test_the_profile_asks_sbatch_for_its_account_and_more() -> None:
    slurm = Scheduling(account="abc123", partition="big", qos="debug", directives=("--mem=0",))
    text = script(profile=ClusterProfile(name="mine", slurm=slurm))
    asked = [directive(text, option) for option in ("account", "partition", "qos", "mem")]
    assert asked == ["abc123", "big", "debug", "0"]


def test_the_profiles_environment_is_set_up_before_any_check(cluster: Cluster) -> None:
    bin_folder = cluster.root / "virtual environment" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "activate").write_text(f'PATH="{bin_folder}:$PATH"\n')
    (bin_folder / "mypython").symlink_to(sys.executable)
    environment = Environment(
        virtual_environment=str(bin_folder.parent),
        variables={"NCCL_NET_GDR_LEVEL": "it's 4"},
        prologue="export FI_MR_CACHE_MONITOR=$((40 + 2))",
    )
    profile = profile_of(cluster, environment=environment, python="mypython")
    done = cluster.run(script(profile=profile), **NOTHING_SET)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)["env"]
    assert (seen["NCCL_NET_GDR_LEVEL"], seen["FI_MR_CACHE_MONITOR"]) == ("it's 4", "42")


def test_a_module_that_does_not_load_ends_the_launch(cluster: Cluster) -> None:
    profile = profile_of(cluster, environment=Environment(modules=("no-such-module",)))
    done = cluster.run(script(profile=profile), **NOTHING_SET)
    assert done.returncode == 78
    assert "no-such-module does not load" in done.stderr


def test_tasks_run_in_the_profiles_container(cluster: Cluster) -> None:
    cluster.command("apptainer", '#!/bin/bash\necho "inside $3" >&2\nshift 3\nexec "$@"\n')
    container = Container(runtime="apptainer", image="an image.sif", options=("--nv",))
    done = cluster.run(script(profile=profile_of(cluster, container=container)), **NOTHING_SET)
    assert strategy_of(argv_of(done), FRONTIER, num_nodes=2) == BASE
    assert "inside an image.sif" in done.stderr


@pytest.mark.parametrize(
    ("known", "taken"),
    [
        ("", "--use-flash-attn"),
        ("'--use-flash-attn'", "--use-flash-attn"),
        ("'--use-flash-attn', '--use-flash-attn-v1'\n'--use-flash-attn-v2'", FLASH_ATTENTION_2),
    ],
    ids=["a checkout that only the nodes see", "frontier-sd", "FA2"],
)
def test_the_fork_is_launched_by_its_own_script(cluster: Cluster, known: str, taken: str) -> None:
    """In the branch FA2, FlashAttention 2 has an option of its own; the other one means 1."""
    (cluster.megatron / "pretrain_gpt.py").rename(cluster.megatron / "pretrain_gpt_deepspeed.py")
    (cluster.megatron / "megatron" / "arguments.py").write_text(known)
    megatron = Megatron(path=str(cluster.megatron), variant="ornl", data_path="d")
    done = cluster.run(script(profile=profile_of(cluster, megatron=megatron)), **NOTHING_SET)
    argv = argv_of(done)
    assert [word for word in argv if "flash" in word] == [taken]
    # What was known here before is chosen by the clone that the user names at last.
    unread = script(profile=profile_of(cluster, megatron=replace(megatron, path="/not/here")))
    named = NOTHING_SET | {"MEGATRON_DIR": megatron.path}
    assert argv_of(cluster.run(unread, **named)) == argv
    assert strategy_of(argv, FRONTIER, num_nodes=2, variant="ornl") == BASE
    assert megatron_parser("ornl").parse_args(argv).master_addr == "node17"


def test_a_clone_that_cannot_train_the_strategy_is_refused_first(
    cluster: Cluster,
) -> None:
    """By the clone that is named at last, whatever was known here."""
    text = script("ZeRO-2 with tensor parallelism")
    assert cluster.run(text).returncode == 0
    layers = cluster.megatron / "megatron" / "core" / "tensor_parallel" / "layers.py"
    layers.parent.mkdir(parents=True)
    layers.write_text("        return self.local_embeddings(position_ids - self.offset)\n")
    done = cluster.run(text)
    assert done.returncode == 2
    assert "index out of range in self" in done.stderr
    assert "srun" not in done.stderr
    assert cluster.run(script()).returncode == 0, "another strategy does not meet the defect"


def test_random_tokens_are_trained_on_if_there_is_no_data(cluster: Cluster) -> None:
    megatron = Megatron(path=str(cluster.megatron), arguments=("--lr", "3.0e-4"))
    text = script(profile=profile_of(cluster, megatron=megatron))
    done = cluster.run(text, **NOTHING_SET)
    args = arguments_of(done)
    (data,) = args.data_path
    assert Path(data).parent == cluster.submitted_from / "synthetic"
    assert Path(f"{data}.idx").is_file()
    assert Path(f"{data}.bin").is_file()
    own = cluster.run(text, **NOTHING_SET | {"DATA_PATH": "my own"})
    assert arguments_of(own).data_path == ["my own"]
