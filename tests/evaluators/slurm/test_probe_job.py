"""A short job on a node, and what it tells: on a real Slurm."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluators.cluster import ClusterProfile, profile_from_dict
from evaluators.slurm.commands import SlurmRefused
from evaluators.slurm.probe import ProbeReport, probe, report_in
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.xdist_group("slurm")

SYSTEM_PYTHON = "/usr/bin/python3"


def profile(**tables: Any) -> ClusterProfile:
    return profile_from_dict({"name": "test"} | tables, source="test")


def look(folder: Path, sentences: list[str], *, wait_s: float = 60.0, **tables: Any) -> ProbeReport:
    """On a node with two GPUs."""
    report = probe(
        profile(**tables), gpus_per_node=2, folder=folder, wait_s=wait_s, tell=sentences.append
    )
    assert list(folder.iterdir()) == [], "nothing is left behind"
    return report


def test_every_task_tells_what_trials_would_find(slurm: Cluster, tmp_path: Path) -> None:
    sentences: list[str] = []
    report = look(tmp_path, sentences)
    assert report.node in slurm.nodes
    assert [rank.rank for rank in report.ranks] == [0, 1]
    for rank in report.ranks:
        assert rank.executable == sys.executable
        assert rank.torch
        assert rank.deepspeed
        assert rank.sees_folder
        assert rank.trainer
    assert (report.last_lines, report.gave_up) == ((), "")
    assert any(f"runs on {report.node}" in sentence for sentence in sentences)
    assert slurm.jobs() == {}


@pytest.mark.usefixtures("slurm")
def test_what_the_profile_sets_up_is_not_there(tmp_path: Path) -> None:
    report = look(tmp_path, [], environment={"virtual_environment": "/nowhere/venv"})
    assert report.node
    assert report.ranks == ()
    assert "environment.virtual_environment: none is at /nowhere/venv" in report.last_lines[-1]


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("from megatron import arguments\n", ""),
        ("import apex_of_nowhere\n", "ModuleNotFoundError: No module named 'apex_of_nowhere'"),
    ],
)
def test_megatron_is_imported_from_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, error: str
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    package, folder = tmp_path / "checkout" / "megatron", tmp_path / "data"
    package.mkdir(parents=True)
    folder.mkdir()
    (package / "training.py").write_text(source)
    (package / "arguments.py").write_text("")
    megatron = {"path": str(package.parent)}
    report = look(folder, [], python=SYSTEM_PYTHON, program="megatron-deepspeed", megatron=megatron)
    assert [rank.megatron_error for rank in report.ranks] == [error, error]
    assert {rank.torch for rank in report.ranks} == {""}
    assert "No module named 'torch'" in report.ranks[0].torch_error
    assert not report.ranks[0].trainer


MAKEFILE = """
CPPFLAGS += $(shell python3 -m pybind11 --includes)
SUFFIX := $(shell python3 -c 'from importlib.machinery import *; print(EXTENSION_SUFFIXES[0])')
helpers$(SUFFIX): helpers.cpp
\tg++ -fdiagnostics-color -fsyntax-only $(CPPFLAGS) $< && touch $@
"""


@pytest.mark.usefixtures("slurm")
@pytest.mark.parametrize(
    ("includes", "error"),
    [("", ""), ("#include <of_nowhere.h>\n", "of_nowhere.h: No such file or directory")],
)
def test_megatrons_helpers_compile_with_the_profiles_interpreter(
    tmp_path: Path, includes: str, error: str
) -> None:
    """An environment of its own has the module that the Makefile asks `python3` for."""
    environment = tmp_path / "environment"
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", "--without-pip", environment], check=True)
    (modules,) = environment.glob("lib/python3*/site-packages")
    (modules / "pybind11.py").write_text("print('-I/')")
    data, folder = tmp_path / "checkout" / "megatron" / "data", tmp_path / "data"
    data.mkdir(parents=True)
    folder.mkdir()
    (data / "Makefile").write_text(MAKEFILE)
    (data / "helpers.cpp").write_text(includes)
    megatron = {"path": str(tmp_path / "checkout")}
    python = str(environment / "bin" / "python")
    report = look(folder, [], python=python, program="megatron-deepspeed", megatron=megatron)
    assert error in report.ranks[0].helpers_error
    assert bool(error) == bool(report.ranks[0].helpers_error)
    assert sorted(file.name for file in data.iterdir()) == ["Makefile", "helpers.cpp"]


def test_sbatch_refuses(slurm: Cluster, tmp_path: Path) -> None:
    with pytest.raises(SlurmRefused, match="partition"):
        look(tmp_path, [], slurm={"partition": "nowhere"})
    assert list(tmp_path.iterdir()) == []
    assert slurm.jobs() == {}


def test_no_node_comes_free(slurm: Cluster, tmp_path: Path) -> None:
    for node in slurm.nodes:
        slurm.drain(node)
    sentences: list[str] = []
    report = look(tmp_path, sentences, wait_s=1.5)
    assert "no node within" in report.gave_up
    assert "waits: " in sentences[0]
    assert len(sentences) == len(set(sentences))
    assert report.node == ""
    assert slurm.jobs() == {}, "it is taken back"


def test_a_log_that_is_not_there(tmp_path: Path) -> None:
    assert report_in(tmp_path / "probe.log") == ProbeReport()
