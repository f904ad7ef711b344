"""What a job found on its node, in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.cluster import profile_from_dict
from evaluators.slurm.probe_job import Found, Rank
from server.cli.check import Check
from server.cli.live_checkup import judged

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


def verdict(*ranks: Rank, program: str = "trainer") -> dict[str, Check]:
    tables: dict[str, Any] = {"name": "mine", "program": program, "megatron": {"path": "/m"}}
    profile = profile_from_dict(tables, source="test")
    found = Found(node="n1", ranks=ranks)
    checks = judged(found, profile, gpus_per_node=len(ranks), folder=Path("/data"))
    return {check.name: check for check in checks}


def test_a_node_that_has_all() -> None:
    found = verdict(FINE, replace(FINE, rank=1))
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
    found = verdict(replace(FINE, **change), replace(FINE, rank=1))
    failed = [check for check in found.values() if check.status == "fail"]
    assert [check.name for check in failed] == [f"{what} on n1"]
    assert failed[0].advice
    assert "\n" not in failed[0].found


def test_megatron_needs_no_trainer_of_ours() -> None:
    without = replace(FINE, trainer=False)
    assert verdict(without, program="megatron-deepspeed")["Python on n1"].status == "ok"


def test_without_gpus_and_power_trials_can_be_run_all_the_same() -> None:
    found = verdict(replace(FINE, gpus=(), power=""))
    assert {name for name, check in found.items() if check.status == "warn"} == {
        "GPUs on n1",
        "power on n1",
    }
    assert "fail" not in {check.status for check in found.values()}
