"""What a trial has of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaluators.cluster.profile import ClusterProfile, Tasks
from evaluators.ray.work import bundle_of
from tests.evaluators.slurm.trials import machine


@pytest.mark.parametrize(
    ("gpu", "cpus_per_task", "bundle"),
    [
        ("NVIDIA A100", None, {"GPU": 4}),
        ("NVIDIA A100", 8, {"GPU": 4, "CPU": 32}),
        ("x86_64 CPU process", None, {"CPU": 4}),
        ("none", 2, {"CPU": 8}),
    ],
)
def test_a_bundle_is_all_of_a_nodes_gpus_or_else_cpus(
    gpu: str, cpus_per_task: int | None, bundle: dict[str, float]
) -> None:
    profile = ClusterProfile(name="p", tasks=Tasks(cpus_per_task=cpus_per_task))
    assert bundle_of(replace(machine(gpus=4), gpu=gpu), profile) == bundle
