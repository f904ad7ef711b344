"""What is said before anything is queued."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.cluster.profile import ClusterProfile, Environment, Megatron
from evaluators.slurm.commands import SlurmUnavailable
from evaluators.slurm.preflight import check
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.trials import PROFILE, machine

pytestmark = pytest.mark.xdist_group("slurm")

READY = replace(PROFILE, python=sys.executable)


def problems(
    profile: ClusterProfile = READY, *, nodes: int = 2, time_limit_s: float = 1200.0
) -> list[tuple[str, str]]:
    """Field, and the whole sentence, of each."""
    refused = check(profile, nodes=nodes, time_limit_s=time_limit_s, machine=machine())
    return [(problem.field, str(problem)) for problem in refused]


def at(partition: str) -> ClusterProfile:
    return replace(READY, slurm=replace(READY.slurm, partition=partition))


@pytest.mark.usefixtures("slurm")
def test_a_profile_that_fits_is_told_nothing() -> None:
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
        f"python='{bare}': it has no torch, and the trainer is to run with it "
        "(valid: a Python with torch and DeepSpeed)"
    ]
    assert problems(replace(READY, python="/no/python"))[0][0] == "python"
    module = Environment(modules=("pytorch",))
    assert problems(replace(without, environment=module)) == [], "the nodes have another one"
    megatron = replace(READY, program="megatron-deepspeed", megatron=Megatron(path=str(tmp_path)))
    assert problems(megatron)[0][0] == "megatron.path"


@pytest.mark.usefixtures("slurm")
def test_a_profile_of_another_machine_is_refused() -> None:
    refused = problems(replace(READY, machine="frontier"))
    assert refused[0][1] == (
        "machine='virtual': the profile test is for frontier (valid: frontier)"
    )


def test_a_machine_without_slurm_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert any("there is no sbatch on the PATH" in sentence for _, sentence in problems())


def test_a_silent_slurm_is_no_wrong_input(slurm: Cluster) -> None:
    slurm.stop_controller()
    profile = replace(READY, polling=replace(READY.polling, command_limit_s=1.0))
    with pytest.raises(SlurmUnavailable):
        problems(profile)
