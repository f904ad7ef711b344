"""`autotune doctor`: what keeps the service from this machine, and trials from a cluster."""

from __future__ import annotations

import json
from contextlib import closing
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
    ran = alone.done("doctor")
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
    assert not (tmp_path / "data").exists()


def test_doctor_on_a_database(alone: Autotune, tmp_path: Path) -> None:
    """One that is up to date, one of a later version, and a file that is none."""
    words = ("doctor", "--data-dir", str(tmp_path), "--json")
    with closing(Store(f"sqlite:///{tmp_path}/autotune.db")) as store:
        store.upgrade()
        assert "up to date" in database(alone(*words))["found"]
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert "a later version" in database(alone(*words))["found"]
    refused = alone("serve", "--port", "0", "--data-dir", str(tmp_path), "--no-runner")
    assert refused.code == 1
    assert "a later version of autotune wrote it (schema 9999" in refused.err
    (tmp_path / "autotune.db").write_text("this is no database" * 100)
    ran = alone(*words)
    assert ran.code == 1
    assert [check for check in ran.json() if check["status"] == "fail"] == [database(ran)]
    assert "not a database" in database(ran)["found"]
    assert database(ran)["advice"]


def database(ran: Ran) -> dict[str, Any]:
    return rows(ran)["database"]


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
def test_a_profile_with_which_trials_can_be_submitted_and_others(folder: Path) -> None:
    ran = doctor(folder, "", "--nodes", "8")
    assert ran.code == 0, ran.out
    assert rows(ran)["profile mine"]["status"] == "ok"
    ran = doctor(folder, '[slurm]\npartition = "batsh"', "--nodes", "9")
    assert ran.code == ExitCode.FAILED
    failed = [check for check in rows(ran).values() if check["status"] == "fail"]
    assert "batsh" in json.dumps(failed)
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
    unnamed = alone("doctor", "--profile", "generic")
    assert unnamed.code == ExitCode.BAD_INPUT
    assert "is for any machine" in unnamed.err


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
