"""What a trial has of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.cluster.profile import ClusterProfile, Tasks
from evaluators.ray.backend import bundle_of
from tests.evaluators.slurm.trials import machine


@pytest.mark.parametrize(
    ("gpu", "cpus_per_task", "bundle"),
    [
        ("NVIDIA A100", None, {"GPU": 4}),
        ("NVIDIA A100", 8, {"GPU": 4, "CPU": 32}),
        ("GH200 (Grace CPU, Hopper GPU)", None, {"GPU": 4}),
    ],
)
def test_a_bundle_is_all_of_a_nodes_gpus_whatever_they_are_called(
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
