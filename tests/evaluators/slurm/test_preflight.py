"""What is reported before anything is queued."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import adapter_file
from evaluators.adapter.reading import read_adapter
from evaluators.cluster.profile import ChosenTrainer, ClusterProfile, Environment, Scheduling
from evaluators.slurm.commands import SlurmUnavailable
from evaluators.slurm.preflight import JobShape, check, lack_of_memory
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import MakeCluster, make_slurm
from tests.evaluators.slurm.trials import PROFILE, machine

__all__ = ["make_slurm"]

pytestmark = pytest.mark.xdist_group("slurm")

READY = replace(PROFILE, python=sys.executable)


def problems(
    profile: ClusterProfile = READY, *, nodes: int = 2, time_limit_s: float = 1200.0
) -> list[tuple[str, str]]:
    """Field, and the whole sentence, of each."""
    refused = check(
        profile, job=JobShape(nodes=nodes, time_limit_s=time_limit_s), machine=machine()
    )
    return [(problem.field, str(problem)) for problem in refused]


def at(partition: str) -> ClusterProfile:
    return replace(READY, slurm=replace(READY.slurm, partition=partition))


@pytest.mark.usefixtures("slurm")
def test_a_profile_that_fits_has_no_findings() -> None:
    assert problems() == []
    assert problems(at("")) == []
    assert problems(at("short,batch"), nodes=8) == []


@pytest.mark.usefixtures("slurm")
def test_partitions_times_and_nodes_that_do_not_exist() -> None:
    assert problems(at("bacth")) == [
        (
            "slurm.partition",
            "slurm.partition='bacth': this cluster has no such partition (valid: batch)",
        )
    ]
    assert problems(nodes=9) == [("nodes", "nodes=9: the partition batch has 8 (valid: 1 to 8)")]
    assert problems(at("short"), time_limit_s=300) == [
        (
            "time_limit_s",
            "time_limit_s=300: the partition short ends jobs after 5 min, start-up "
            "and margin included (valid: up to 240 s)",
        )
    ]
    assert problems(at("short"), nodes=5)[0][0] == "nodes"


@pytest.mark.usefixtures("slurm")
def test_what_trains_is_looked_at(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(0o755)
    without = replace(READY, python=str(bare))
    assert [sentence for _, sentence in problems(without)] == [
        f"python='{bare}': it has no torch, which the trainer needs "
        "(valid: a Python with torch and DeepSpeed)"
    ]
    assert problems(replace(READY, python="/no/python"))[0][0] == "python"
    module = Environment(modules=("pytorch",))
    assert problems(replace(without, environment=module)) == [], "the nodes have another one"
    trainer = ChosenTrainer(adapter="megatron-deepspeed", folder=str(tmp_path))
    adapter = read_adapter(adapter_file(trainer.adapter), folder=trainer.folder)
    named = replace(READY, python=str(bare), trainer=trainer, adapter=adapter)
    (folder, no_script), (_, no_packages) = problems(named)
    assert folder == "trainer.folder"
    assert "it has no pretrain_gpt.py" in no_script
    assert "it has no torch, deepspeed" in no_packages
    (tmp_path / "pretrain_gpt.py").touch()
    assert [field for field, _ in problems(named)] == ["python"]


@pytest.mark.usefixtures("slurm")
def test_a_profile_of_another_machine_is_refused() -> None:
    refused = problems(replace(READY, machine="frontier"))
    assert refused[0][1] == (
        "machine='virtual': the profile test is for frontier (valid: frontier)"
    )


def test_a_machine_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert any("sbatch is not on the PATH" in sentence for _, sentence in problems())


def test_a_silent_slurm_is_no_wrong_input(slurm: Cluster) -> None:
    slurm.stop_controller()
    profile = replace(READY, polling=replace(READY.polling, command_limit_s=1.0))
    with pytest.raises(SlurmUnavailable):
        problems(profile)


SITE = """
function slurm_job_submit(job, partitions, user)
    local words = nil
    if job.account == nil then words = "you must give an account with -A"
    elseif job.qos == nil then words = "name a QOS, and try again"
    elseif job.features == nil then words = "name a GPU type with -C"
    elseif job.time_limit > 10 then words = "the licence server is not responding after 10 min"
    end
    if words then slurm.log_user(words); return slurm.ERROR end
    return slurm.SUCCESS
end
function slurm_job_modify() return slurm.SUCCESS end
"""


def test_what_a_site_demands_of_a_job_is_reported(make_slurm: MakeCluster) -> None:
    make_slurm(nodes=2, gpus=0, job_submit=SITE)
    bare = replace(READY, slurm=Scheduling(exclusive=False, gpu_request="none"))

    def refusal(**changes: Any) -> str:
        profile = replace(bare, slurm=replace(bare.slurm, **changes))
        (problem,) = check(profile, job=JobShape(nodes=2, time_limit_s=1200.0), machine=machine())
        assert (problem.field, problem.value) == ("slurm", "2 nodes, 21 min")
        return problem.reason

    before = "sbatch --test-only refuses such a job: "
    assert refusal().startswith(f"{before}you must give an account with -A")
    assert refusal(account="physics").startswith(f"{before}name a QOS, and try again")
    named = {"account": "physics", "qos": "normal"}
    assert refusal(**named).startswith(f"{before}name a GPU type")
    typed = named | {"constraint": "h100"}
    assert "not responding after 10 min" in refusal(**typed)


CLOSED = {
    "batch": "Nodes=ALL Default=YES MaxTime=01:00:00",
    "down": "Nodes=ALL State=DOWN",
    "inactive": "Nodes=ALL State=INACTIVE",
    "draining": "Nodes=ALL State=DRAIN",
    "chemistry": "Nodes=ALL AllowAccounts=chemistry,biology",
    "others": "Nodes=ALL DenyAccounts=physics",
}


def test_partitions_that_run_no_trial_are_named(make_slurm: MakeCluster) -> None:
    cluster = make_slurm(nodes=4, gpus=0, partitions=CLOSED)
    plain = replace(READY, slurm=Scheduling(exclusive=False, gpu_request="none"))

    def found(partition: str, **changes: Any) -> list[tuple[str, str]]:
        slurm = replace(plain.slurm, partition=partition, **changes)
        return problems(replace(plain, slurm=slurm))

    assert found("batch") == []
    assert "it is down: it takes jobs and starts none" in found("down")[0][1]
    assert "it is inactive" in found("inactive")[0][1]
    assert "it is draining" in found("draining")[0][1]
    assert found("down,batch") == [], "one of them is enough"
    assert found("chemistry", account="physics") == [
        (
            "slurm.account",
            "slurm.account='physics': the partition chemistry does not admit this account "
            "(valid: chemistry,biology)",
        )
    ]
    assert found("others", account="physics")[0][0] == "slurm.account"
    assert found("batch", gpu_request="gres") == [
        (
            "slurm.partition",
            "slurm.partition='batch': no node of it has gres/gpu, and trials request GPUs "
            "(valid: a partition with GPUs)",
        )
    ]
    for node in cluster.nodes[:3]:
        cluster.drain(node)
    assert found("batch") == [], "a job waits until two of four nodes are back"


def test_a_holding_job_that_is_too_long_is_reported_in_hours(make_slurm: MakeCluster) -> None:
    make_slurm(nodes=1, gpus=0, partitions=CLOSED)
    profile = replace(READY, slurm=Scheduling(partition="batch", gpu_request="none"))
    holding = JobShape(nodes=1, time_limit_s=7200.0, holds=True)
    (problem,) = check(profile, job=holding, machine=machine())
    assert str(problem) == (
        "pilot.time_limit_h=2.0: the partition batch ends jobs after 60 min (valid: up to 1 h)"
    )
    assert check(profile, job=replace(holding, time_limit_s=3600.0), machine=machine()) == []


SLICES = """n01|small|idle|64000|gpu:1g.10gb:56(S:0-1)|none
n02|small|idle|64000|gpu:a100_3g.20gb:2|none"""


def test_mig_slices_are_no_whole_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a cluster that this machine cannot have: its sinfo's words are replayed."""
    answers = {"scontrol": "PartitionName=small State=UP Default=YES", "sinfo": SLICES}
    for name in ("sbatch", "scontrol", "sinfo"):
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'.'\n{answers.get(name, '')}\n.\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    ((field, sentence),) = problems(at("small"))
    assert field == "slurm.partition"
    assert "MIG slices (gpu:1g.10gb:56(S:0-1))" in sentence
    slices = (tmp_path / "sinfo").read_text()
    (tmp_path / "sinfo").write_text(slices.replace("gpu:a100_3g.20gb:2", "gpu:a100:8"))
    assert problems(at("small")) == [], "some of its nodes have whole ones"


def test_the_memory_that_a_job_gets(make_slurm: MakeCluster) -> None:
    partitions = {
        "batch": "Nodes=ALL Default=YES",
        "percpu": "Nodes=ALL DefMemPerCPU=500",
        "all": "Nodes=ALL DefMemPerNode=64000",
    }
    make_slurm(nodes=1, gpus=0, partitions=partitions, options={"DefMemPerNode": "6400"})

    def lack(partition: str, *directives: str, **changes: Any) -> str:
        slurm = Scheduling(partition=partition, gpu_request="none", directives=directives)
        profile = replace(READY, slurm=replace(slurm, **changes))
        return lack_of_memory(profile, machine=machine())

    assert lack("batch", "--mem=32G") == (
        "a job gets 32 of a node's 62.5 GiB (--mem=32G of its profile)"
    )
    assert [lack("batch", mem) for mem in ("--mem=0", "--mem=64000", "--mem-per-gpu=1G")] == [
        ""
    ] * 3
    assert [lack(name) for name in partitions] == [""] * 3, "whole nodes, with --mem=0"
    assert [lack(name, exclusive=False) for name in partitions] == [
        "a job gets 6.25 of a node's 62.5 GiB (DefMemPerNode=6400)",
        f"a job gets {500 * machine().gpus_per_node / 1024:.3g} of a node's 62.5 GiB "
        "(DefMemPerCPU=500)",
        "",
    ]
