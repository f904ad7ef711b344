"""A trial on Ray: its bundle, its files, and its log, without a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import TrialContext, read_abandoned
from evaluators.cluster.profile import ClusterProfile, Tasks
from evaluators.ray.backend import RayTrial, bundle_of
from evaluators.trial import read_result
from tests.evaluators.slurm.trials import PROFILE, Lines, machine, request
from tests.patience import PATIENCE_S


@pytest.fixture
def context() -> Iterator[TrialContext]:
    with ThreadPoolExecutor() as readers:
        yield TrialContext(profile=PROFILE, program=Lines(), readers=readers)


def test_a_log_that_two_runners_fetch_is_there_once(tmp_path: Path, context: TrialContext) -> None:
    """One of them was taken for dead and lives."""
    trial_request = request(tmp_path)
    trials = [RayTrial.of(trial_request, context), RayTrial.of(trial_request, context)]
    for trial in trials:
        trial.note(taken=True)
    for part in (b"rank 0 of 1\n", b"iteration 1\n"):
        for trial in trials:
            trial.add_log(part, at=trial.logged)
    assert trials[0].attempt.log.read_bytes() == b"rank 0 of 1\niteration 1\n"


def test_a_lost_trial_held_nodes_no_longer_than_it_was_there(
    tmp_path: Path, context: TrialContext
) -> None:
    """The clock was two hours behind when it began."""
    trial = RayTrial.of(request(tmp_path), context)
    trial.note(taken=True)
    trial.add_log(b"rank 0 of 1\n", at=0)
    trial.began_at -= 7200.0
    folder = trial.attempt.folder
    trial.take(None)
    assert trial.attempt.number == 2
    abandoned = read_abandoned(folder)
    assert abandoned
    assert 0.0 <= abandoned.duration_s < PATIENCE_S


def test_a_cancelled_trial_with_a_dead_keeper_ends_unfollowed(
    tmp_path: Path, context: TrialContext
) -> None:
    trial_request = request(tmp_path)
    RayTrial.of(trial_request, context).note(taken=True)
    trial = RayTrial.of(trial_request, context)
    trial.cancel()
    trial.take(None)
    assert trial.reading
    trial.reading.result()
    outcome = read_result(trial_request.directory)
    assert outcome
    assert outcome.status is TrialState.CANCELLED


@pytest.mark.parametrize(
    ("gpu", "cpus_per_task", "bundle"),
    [
        ("NVIDIA A100", None, {"GPU": 4}),
        ("NVIDIA A100", 8, {"GPU": 4, "CPU": 32}),
        ("GH200 (Grace CPU, Hopper GPU)", None, {"GPU": 4}),
    ],
)
def test_a_bundle_is_all_gpus_of_a_node_whatever_their_name(
    gpu: str, cpus_per_task: int | None, bundle: dict[str, float]
) -> None:
    profile = ClusterProfile(name="p", tasks=Tasks(cpus_per_task=cpus_per_task))
    assert bundle_of(replace(machine(gpus=4), gpu=gpu, peak_tflops=312.0), profile) == bundle


@pytest.mark.parametrize(("cpus_per_task", "cpus"), [(None, 4), (2, 8)])
def test_where_ranks_run_on_cpus_a_bundle_is_of_cpus(
    cpus_per_task: int | None, cpus: float
) -> None:
    on_cpus = replace(machine(gpus=4), peak_tflops=None, memory_bandwidth_gb_per_s=20.0)
    profile = ClusterProfile(name="p", tasks=Tasks(cpus_per_task=cpus_per_task))
    assert bundle_of(on_cpus, profile) == {"CPU": cpus}
