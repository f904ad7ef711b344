"""What a job found on its node, in words."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.cluster import ClusterProfile
from evaluators.slurm.probe import ProbeReport, TaskReport
from server.cli.checks import CheckResult
from server.cli.checks.slurm import node_results
from tests.cluster.fixtures import slurm
from tests.patience import PATIENCE_S
from tests.requirement import require

__all__ = ["slurm"]

ELSEWHERE = 'mount -t tmpfs none "$0" || exit 99; exec "$@"'
CHECK = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from evaluators.cluster import profile_from_dict
from server.cli.checks.slurm import check_node
profile = profile_from_dict({"name": "mine"}, source="test")
folder = Path(sys.argv[1])
results = check_node(profile, gpus_per_node=2, folder=folder, tell=sys.stderr.write, settle_s=0.5)
print(json.dumps([asdict(result) for result in results]))
"""
FINE = TaskReport(
    rank=0,
    python="3.11.7",
    executable="/venv/bin/python",
    sees_folder=True,
    trainer=True,
    power="rocm-smi",
    deepspeed="0.16.3",
    torch="2.7.1",
    gpus=("MI250X",),
)


def checked(*ranks: TaskReport, adapter: Adapter | None = None) -> dict[str, CheckResult]:
    profile = ClusterProfile(name="mine", adapter=adapter)
    report = ProbeReport(node="n1", ranks=ranks)
    checks = node_results(report, profile, gpus_per_node=len(ranks), folder=Path("/data"))
    return {check.name: check for check in checks}


def test_a_node_that_has_all() -> None:
    results = checked(FINE, replace(FINE, rank=1))
    assert {check.status for check in results.values()} == {"ok"}
    assert results["GPUs on n1"].found == "2 tasks, each sees 1 × MI250X"
    assert results["power on n1"].found == "measured with rocm-smi"


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("data folder", {"sees_folder": False}),
        ("Python", {"trainer": False}),
        ("torch", {"torch": "", "torch_error": "ImportError: libamdhip64.so\nand more"}),
        ("deepspeed", {"deepspeed": ""}),
        ("GPUs", {"gpus": ("MI250X", "MI250X")}),
    ],
)
def test_what_a_task_lacks_is_a_failure_with_advice(what: str, change: dict[str, Any]) -> None:
    results = checked(replace(FINE, **change), replace(FINE, rank=1))
    failed = [check for check in results.values() if check.status == "fail"]
    assert [check.name for check in failed] == [f"{what} on n1"]
    assert failed[0].advice
    assert "\n" not in failed[0].found


MEGATRON = load_adapter("megatron-deepspeed")


def test_an_adapters_trainer_needs_its_own_packages_alone() -> None:
    results = checked(replace(FINE, trainer=False), adapter=MEGATRON)
    assert {check.status for check in results.values()} == {"ok"}
    row = "packages of megatron-deepspeed on n1"
    assert "transformers" in results[row].found
    failed = checked(replace(FINE, missing=("six", "regex")), adapter=MEGATRON)[row]
    assert (failed.status, failed.found) == ("fail", "without six, regex")
    assert "/venv/bin/python" in failed.advice


def test_without_gpus_and_power_trials_can_be_run_all_the_same() -> None:
    results = checked(replace(FINE, gpus=(), power=""))
    assert {name for name, check in results.items() if check.status == "warn"} == {
        "GPUs on n1",
        "power on n1",
    }
    assert "fail" not in {check.status for check in results.values()}


@pytest.mark.xdist_group("slurm-service")
@pytest.mark.usefixtures("slurm")
def test_a_data_folder_that_nodes_do_not_see(tmp_path: Path) -> None:
    """Its file system is mounted for one process alone, as one of a login node would be."""
    mounting = ["unshare", "--map-root-user", "--mount", "sh", "-c", ELSEWHERE, str(tmp_path)]
    able = shutil.which("unshare") and subprocess.run([*mounting, "true"], check=False)
    require(able and able.returncode == 0, "leave to mount a small file system")
    done = subprocess.run(
        [*mounting, sys.executable, "-c", CHECK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [failed] = json.loads(done.stdout)
    assert (failed["name"], failed["status"]) == ("data folder", "fail")
    assert str(tmp_path) in failed["found"]
    assert "AUTOTUNE_DATA_DIR" in failed["advice"]
