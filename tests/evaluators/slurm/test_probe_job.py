"""A short job on a node, and what it tells: on a real Slurm."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.adapter.catalog import load_adapter
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
def test_what_the_trainer_needs_is_looked_for_on_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # a job has its submitter's variables
    adapter = replace(load_adapter("megatron-deepspeed"), needs=("json", "of_nowhere"))
    named = replace(profile(python=SYSTEM_PYTHON), adapter=adapter)
    report = probe(named, gpus_per_node=2, folder=tmp_path, wait_s=60.0, tell=print)
    assert [rank.missing for rank in report.ranks] == [("of_nowhere",)] * 2
    assert "No module named 'torch'" in report.ranks[0].torch_error
    assert not report.ranks[0].trainer


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
