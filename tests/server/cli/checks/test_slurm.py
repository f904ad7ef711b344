"""What `autotune doctor` says about Slurm, on a real one and without any."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evaluators.slurm.commands import Slurm
from server.cli.checks import CheckResult
from server.cli.checks.slurm import accounting, allocation, check_slurm, partitions
from server.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import MakeCluster, make_slurm
from tests.cluster.fixtures import slurm as cluster
from tests.server.cli.conftest import Autotune

__all__ = ["cluster", "make_slurm"]

pytestmark = pytest.mark.xdist_group("slurm-service")


def checks(folder: Path) -> dict[str, CheckResult]:
    return {check.name: check for check in check_slurm(Settings(data_dir=folder))}


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_answers(tmp_path: Path) -> None:
    results = checks(tmp_path)
    assert "answers in" in results["Slurm controller"].found
    assert "batch (8 nodes, at most 1-00:00:00, the default)" in results["partitions"].found
    assert "short (4 nodes, at most 00:05:00)" in results["partitions"].found
    assert results["accounting"].status == "warn"
    assert results["accounting"].found == "off"
    assert results["folder for nodes"].found == "every node is on this machine"
    assert "allocation" not in results


def test_with_accounting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That sacct answers with accounting is tested where it is called."""
    (tmp_path / "sacct").write_text("#!/bin/sh\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert accounting(Slurm()) == CheckResult.ok("accounting", "on; sacct knows ended jobs")


def test_many_partitions_and_one_that_is_down() -> None:
    many = {f"p{number}": {"TotalNodes": "1", "State": "UP"} for number in range(1, 9)}
    result = partitions({"p0": {"TotalNodes": "1", "State": "DOWN"}, **many})
    assert "p0 (1 nodes, no time limit, down)" in result.found
    assert "and 3 more" in result.found
    assert partitions({}).status == "warn"


def test_nodes_that_take_no_jobs(cluster: Cluster, tmp_path: Path) -> None:
    assert checks(tmp_path)["nodes"] == CheckResult.ok("nodes", "8 nodes, all take jobs")
    for node in cluster.nodes[:5]:
        cluster.drain(node, "new firmware")
    cluster.down(cluster.nodes[5], "bad fan")
    check = checks(tmp_path)["nodes"]
    assert check.status == "warn"
    assert check.found == (
        "6 of 8 nodes take no jobs: 5 are drained: new firmware; 1 is down: bad fan"
    )


def test_a_folder_that_the_nodes_do_not_see(make_slurm: MakeCluster, tmp_path: Path) -> None:
    """One node of the partition is another machine, which need not answer for this."""
    other = "NodeName=far NodeAddr=127.0.0.1 Port=1 State=DOWN\nPartitionName=wide"
    make_slurm(nodes=1, gpus=0, partitions={"batch": f"Nodes=n01 Default=YES\n{other} Nodes=far"})
    check = checks(tmp_path)["folder for nodes"]
    assert check.status == "warn"
    assert str(tmp_path) in check.found
    assert "AUTOTUNE_DATA_DIR" in check.advice


def test_inside_an_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    assert allocation() == []
    monkeypatch.setenv("SLURM_JOB_ID", "41")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    [result] = allocation()
    assert "inside job 41, nodes: 2; `--evaluator pilot`" in result.found


@pytest.mark.usefixtures("cluster")
def test_slurm_that_does_not_answer(
    alone: Autotune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path))
    (tmp_path / "slurm.conf").write_text("ClusterName=without-a-controller\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    ran = alone("doctor", "--json")
    assert ran.code == 0, "the service works without it"
    results = {check["name"]: check for check in ran.json()}
    assert "does not answer" in results["Slurm controller"]["found"]
    assert results["Slurm controller"]["status"] == "warn"
    assert "munge" in results
    assert "partitions" not in results


def test_no_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [check] = check_slurm(Settings(data_dir=tmp_path))
    assert check.status == "ok"
    assert "none" in check.found


@pytest.mark.usefixtures("cluster")
def test_half_a_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("sbatch", "squeue", "scontrol"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tmp_path))
    results = checks(tmp_path)
    assert results["Slurm"].status == "warn"
    assert "without sacct, scancel, srun, sinfo" in results["Slurm"].found
    assert results["Slurm controller"].status == "ok"
    assert results["accounting"].status == "warn"
