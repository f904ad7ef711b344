"""What `autotune doctor` says about Slurm, on a real one and without any."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from server.cli.checks.result import CheckResult
from server.cli.checks.slurm import check_slurm
from server.settings import Settings
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import MakeCluster, make_slurm, slurm_session
from tests.cluster.fixtures import slurm as cluster
from tests.server.cli.conftest import Autotune

__all__ = ["cluster", "make_slurm", "slurm_session"]

pytestmark = pytest.mark.xdist_group("slurm-service")


def checks(folder: Path) -> dict[str, CheckResult]:
    return {check.name: check for check in check_slurm(Settings(data_dir=folder))}


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_answers(tmp_path: Path) -> None:
    found = checks(tmp_path)
    assert "answers in" in found["Slurm controller"].found
    assert "batch (8 nodes, at most 1-00:00:00, the default)" in found["partitions"].found
    assert "short (4 nodes, at most 00:05:00)" in found["partitions"].found
    assert found["accounting"].status == "warn"
    assert found["accounting"].found == "off"
    assert found["folder for nodes"].found == "every node is on this machine"
    assert "allocation" not in found


def test_with_accounting(make_slurm: MakeCluster, tmp_path: Path) -> None:
    make_slurm(nodes=1, gpus=0, accounting=True)
    found = checks(tmp_path)
    assert {check.status for check in found.values()} == {"ok"}
    assert "sacct knows ended jobs" in found["accounting"].found


def test_many_partitions_and_one_that_is_down(make_slurm: MakeCluster, tmp_path: Path) -> None:
    many = {f"p{number}": "Nodes=ALL" for number in range(1, 9)}
    make_slurm(nodes=1, gpus=0, partitions={"p0": "Nodes=ALL State=DOWN", **many})
    text = checks(tmp_path)["partitions"].found
    assert "p0 (1 nodes, no time limit, down)" in text
    assert "and 3 more" in text


def test_a_folder_that_the_nodes_do_not_see(make_slurm: MakeCluster, tmp_path: Path) -> None:
    """One node of the partition is another machine, which need not answer for this."""
    other = "NodeName=far NodeAddr=127.0.0.1 Port=1 State=DOWN\nPartitionName=wide"
    make_slurm(nodes=1, gpus=0, partitions={"batch": f"Nodes=n01 Default=YES\n{other} Nodes=far"})
    check = checks(tmp_path)["folder for nodes"]
    assert check.status == "warn"
    assert str(tmp_path) in check.found
    assert "AUTOTUNE_DATA_DIR" in check.advice


def test_inside_an_allocation(cluster: Cluster) -> None:
    said = cluster.command(
        *("srun", "-N2", sys.executable, "-c"),
        "from server.cli.checks.slurm import allocation; print(allocation()[0].found)",
    )
    assert "nodes: 2; `--mode pilot`" in said


def test_a_controller_that_is_down(
    cluster: Cluster, alone: Autotune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path))
    cluster.kill_controller()
    ran = alone("doctor", "--json")
    assert ran.code == 0, "the service works without it"
    found = {check["name"]: check for check in ran.json()}
    assert "does not answer" in found["Slurm controller"]["found"]
    assert found["Slurm controller"]["status"] == "warn"
    assert "munge" in found
    assert "partitions" not in found


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
    found = checks(tmp_path)
    assert found["Slurm"].status == "warn"
    assert "without sacct, scancel, srun, sinfo" in found["Slurm"].found
    assert found["Slurm controller"].status == "ok"
    assert found["accounting"].status == "warn"
