"""The bundled trainer by srun on several nodes of a real Slurm, and every way it may end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program.trainer import TrainerProgram
from evaluators.trial import TrialRequest
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from tests.cluster import Cluster
from tests.evaluators.local.trials import FOREVER, request, strategy
from tests.evaluators.program.jobs import SHARED, Job, ended
from tests.patience import PATIENCE_S
from tests.requirement import require

PROFILE = ClusterProfile(name="test", slurm=SHARED)
PROGRAM = TrainerProgram(PROFILE)
TWO_BY_TWO = replace(strategy(2, 2), num_nodes=2)


@pytest.fixture
def nodes(slurm: Cluster) -> Iterator[Cluster]:
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    yield slurm
    assert not left_over(slurm)


def left_over(cluster: Cluster) -> list[int]:
    """Processes of trials on any node; those that have just been killed may still be going."""
    running = [psutil.Process(pid) for name in cluster.nodes for pid in cluster.processes(name)]
    _, left = psutil.wait_procs(running, timeout=PATIENCE_S)
    return [process.pid for process in left]


def trial(folder: Path, layout: Strategy = TWO_BY_TWO, **others: Any) -> TrialRequest:
    return request(folder / "t1", layout, ranks=2, **others)


def training(job: Job) -> None:
    job.until(lambda: "iteration 1" in job.log, "trained")


def ranks(cluster: Cluster, node: str) -> list[int]:
    """The processes of a node's ranks: those at the ends of the tree."""
    there = cluster.processes(node)
    parents = {psutil.Process(pid).ppid() for pid in there}
    return [pid for pid in there if pid not in parents]


@pytest.mark.xdist_group("slurm")
def test_two_nodes_of_two_ranks_train_and_measure(tmp_path: Path, nodes: Cluster) -> None:
    assert len(nodes.nodes) >= 2
    job = Job.submit(PROGRAM, PROFILE, trial(tmp_path, accumulations=(2, 4)))
    outcome = job.outcome()
    assert outcome.status is TrialState.OK, job.log
    assert [m.gradient_accumulation_steps for m in outcome.measurements] == [2, 4]
    assert [len(m.iteration_times_s) for m in outcome.measurements] == [2, 2]
    assert len(outcome.peak_memory_gib) == 4
    assert outcome.loss
    assert {"torch", "deepspeed"} <= set(outcome.versions)
    assert outcome.gpu_joules_per_token is None
    assert "neither nvidia-smi nor rocm-smi" in outcome.energy_note
    assert (outcome.host, outcome.job_id) == ("n[01-02]", job.job_id)
    assert "iteration 3" in outcome.log_tail


@pytest.mark.soak
@pytest.mark.xdist_group("slurm")
def test_the_cause_of_a_crash_is_the_first_rank_that_failed(tmp_path: Path, nodes: Cluster) -> None:
    job = Job.submit(PROGRAM, PROFILE, trial(tmp_path, measured_iterations=FOREVER))
    training(job)
    os.kill(ranks(nodes, "n02")[-1], signal.SIGKILL)
    outcome = job.outcome()
    assert outcome.status is TrialState.CRASHED, job.log
    assert "SIGKILL" in (outcome.error or "")


def test_a_rank_without_memory_is_found_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "trial.log").write_text("[rank3]: RuntimeError: CUDA out of memory.\n")
    outcome = PROGRAM.outcome(trial(tmp_path), tmp_path, ended(1))
    assert outcome.status is TrialState.OOM
    assert "out of memory" in (outcome.error or "")


def test_a_result_that_is_cut_is_a_crash_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"status": "ok", "measu')
    outcome = PROGRAM.outcome(trial(tmp_path), tmp_path, ended(0))
    assert outcome.status is TrialState.CRASHED
    assert "result.json cannot be read" in (outcome.error or "")


def test_a_good_end_without_a_result_is_a_crash_that_says_so(tmp_path: Path) -> None:
    outcome = PROGRAM.outcome(trial(tmp_path), tmp_path, ended(0))
    assert outcome.status is TrialState.CRASHED
    assert "result.json is missing" in (outcome.error or "")


def test_a_strategy_it_cannot_run_is_refused_before_queueing(tmp_path: Path) -> None:
    interleaved = replace(TWO_BY_TWO, virtual_stages=2)
    with pytest.raises(InvalidInput, match="virtual_stages"):
        PROGRAM.files(trial(tmp_path, interleaved), tmp_path)
    with pytest.raises(InvalidInput, match="stages"):
        PROGRAM.files(trial(tmp_path, replace(strategy(1, 8), num_nodes=4)), tmp_path)


def test_what_only_the_nodes_can_tell_is_left_to_them(tmp_path: Path) -> None:
    half = replace(TWO_BY_TWO, precision="fp16", zero_stage=1)
    assert "request.json" in PROGRAM.files(trial(tmp_path, half), tmp_path)
