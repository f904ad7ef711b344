"""What a job found on its node, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.cluster import profile_from_dict
from evaluators.slurm.probe_job import Found, Rank
from server.cli.checks.live import node_results
from server.cli.checks.result import CheckResult

FINE = Rank(
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


def checked(*ranks: Rank, program: str = "trainer") -> dict[str, CheckResult]:
    tables: dict[str, Any] = {"name": "mine", "program": program, "megatron": {"path": "/m"}}
    profile = profile_from_dict(tables, source="test")
    found = Found(node="n1", ranks=ranks)
    checks = node_results(found, profile, gpus_per_node=len(ranks), folder=Path("/data"))
    return {check.name: check for check in checks}


def test_a_node_that_has_all() -> None:
    found = checked(FINE, replace(FINE, rank=1))
    assert {check.status for check in found.values()} == {"ok"}
    assert found["GPUs on n1"].found == "2 tasks, each sees 1 × MI250X"
    assert found["power on n1"].found == "rocm-smi tells it"


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
    found = checked(replace(FINE, **change), replace(FINE, rank=1))
    failed = [check for check in found.values() if check.status == "fail"]
    assert [check.name for check in failed] == [f"{what} on n1"]
    assert failed[0].advice
    assert "\n" not in failed[0].found


def test_megatron_needs_no_trainer_of_ours() -> None:
    results = checked(replace(FINE, trainer=False), program="megatron-deepspeed")
    assert results["Python on n1"].status == "ok"
    assert results["Megatron on n1"].found == "/m can be imported"


def test_a_megatron_that_cannot_be_imported_is_a_failure_with_advice() -> None:
    lacking = replace(FINE, rank=1, megatron_error="ModuleNotFoundError: No module named 'six'")
    results = checked(FINE, lacking, program="megatron-deepspeed")
    assert results["Megatron on n1"].status == "fail"
    assert "No module named 'six'" in results["Megatron on n1"].found
    assert "/venv/bin/python" in results["Megatron on n1"].advice
    assert "Megatron on n1" not in checked(FINE)


def test_without_gpus_and_power_trials_can_be_run_all_the_same() -> None:
    found = checked(replace(FINE, gpus=(), power=""))
    assert {name for name, check in found.items() if check.status == "warn"} == {
        "GPUs on n1",
        "power on n1",
    }
    assert "fail" not in {check.status for check in found.values()}
