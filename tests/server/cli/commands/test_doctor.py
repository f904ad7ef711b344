"""`autotune doctor`: what keeps the service from this machine, and trials from a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from server.cli.failures import ExitCode
from server.store import Store
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.server.cli.conftest import Autotune, Ran

__all__ = ["slurm"]

pytestmark = pytest.mark.xdist_group("slurm-service")

TWO_GPUS = """
gpu = "A small one"
gpus_per_node = 2
max_nodes = 8
memory_gib = 16
memory_bandwidth_gb_per_s = 100
intra_node_gb_per_s = 10
inter_node_gb_per_s = 1
"""


def test_doctor(alone: Autotune, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path / "data"))
    ran = alone("doctor")
    assert ran.code == 0, ran.out
    for name in (
        "Python",
        "data folder",
        "database",
        "torch",
        "deepspeed",
        "GPUs",
        "port",
        "Slurm",
    ):
        assert name in ran.out
    checks = alone("doctor", "--json").json()
    assert {check["status"] for check in checks} <= {"ok", "warn"}
    assert not (tmp_path / "data").exists()


def test_doctor_finds_what_fails(alone: Autotune, tmp_path: Path) -> None:
    (tmp_path / "autotune.db").write_text("this is no database" * 100)
    ran = alone("doctor", "--data-dir", str(tmp_path), "--json")
    assert ran.code == 1
    [failed] = [check for check in ran.json() if check["status"] == "fail"]
    assert failed["name"] == "database"
    assert "not a database" in failed["found"]
    assert failed["advice"]


def test_doctor_on_a_database_that_is_in_use(alone: Autotune, tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path}/autotune.db")
    store.upgrade()
    store.close()
    checks = alone("doctor", "--data-dir", str(tmp_path), "--json").json()
    [schema] = [check["found"] for check in checks if check["name"] == "database"]
    assert "up to date" in schema


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Of one's own profiles, and of a machine that they are for."""
    (tmp_path / "small.toml").write_text(TWO_GPUS)
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    monkeypatch.setenv("AUTOTUNE_PROFILES_DIR", str(profiles))
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path / "data"))
    return profiles


def arguments(folder: Path, name: str, *more: str) -> list[str]:
    machine = str(folder.parent / "small.toml")
    return ["doctor", "--profile", name, "--machine", machine, "--json", *more]


def doctor(folder: Path, text: str, *more: str) -> Ran:
    (folder / "mine.toml").write_text(text)
    return Autotune()(*arguments(folder, "mine", *more))


def rows(ran: Ran) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in ran.json()}


@pytest.mark.usefixtures("slurm")
def test_a_profile_with_which_trials_can_be_submitted(folder: Path) -> None:
    ran = doctor(folder, "", "--nodes", "8")
    assert ran.code == 0, ran.out
    assert rows(ran)["profile mine"]["status"] == "ok"


@pytest.mark.parametrize(
    ("text", "nodes", "parts"),
    [
        ('[slurm]\npartition = "batsh"', "1", ["batsh", "batch"]),
        ("", "9", ["9"]),
        ('[slurm]\npartition = "short"', "1", ["short"]),
        ('program = "megatron-deepspeed"\n[megatron]\npath = "/nowhere"', "1", ["/nowhere"]),
    ],
)
@pytest.mark.usefixtures("slurm")
def test_what_keeps_trials_from_being_submitted(
    folder: Path, text: str, nodes: str, parts: list[str]
) -> None:
    ran = doctor(folder, text, "--nodes", nodes)
    assert ran.code == ExitCode.FAILED
    failed = [check for check in rows(ran).values() if check["status"] == "fail"]
    for part in parts:
        assert part in json.dumps(failed)
    assert all(check["advice"] for check in failed)


def test_a_profile_that_cannot_be_used(alone: Autotune, folder: Path) -> None:
    unknown = alone("doctor", "--profile", "frontir")
    assert unknown.code == ExitCode.BAD_INPUT
    assert "did you mean frontier?" in unknown.err
    broken = doctor(folder, '[slurm]\npartitoin = "batch"')
    assert broken.code == ExitCode.BAD_INPUT
    assert "slurm.partitoin" in broken.err


def test_what_needs_a_profile_or_a_machine(alone: Autotune) -> None:
    for option in (("--live",), ("--machine", "frontier")):
        refused = alone("doctor", *option)
        assert refused.code == ExitCode.BAD_INPUT
        assert "--profile" in refused.err
    unsaid = alone("doctor", "--profile", "generic")
    assert unsaid.code == ExitCode.BAD_INPUT
    assert "is for any machine" in unsaid.err


def test_a_job_tells_what_a_node_has(slurm: Cluster, folder: Path) -> None:
    ran = doctor(folder, "", "--live")
    assert ran.code == 0, ran.out
    node = next(name for name in slurm.nodes if f"torch on {name}" in rows(ran))
    results = rows(ran)
    assert "is seen by every task" in results[f"data folder on {node}"]["found"]
    assert results[f"GPUs on {node}"]["status"] == "warn"
    assert "energy stays empty" in results[f"power on {node}"]["advice"]
    assert f"runs on {node}" in ran.err
    assert slurm.jobs() == {}


@pytest.mark.usefixtures("slurm")
def test_a_job_tells_what_a_node_lacks(folder: Path) -> None:
    ran = doctor(folder, '[environment]\nvirtual_environment = "/nowhere/venv"', "--live")
    assert ran.code == ExitCode.FAILED
    [failed] = [check for check in rows(ran).values() if check["status"] == "fail"]
    assert failed["name"].startswith("tasks on n0")
    assert "none is at /nowhere/venv" in failed["found"]
