"""Ray as an evaluator of DeepHyper, on a real cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evaluators.cluster.profile import ClusterProfile, RayCluster
from evaluators.ray.deephyper import RayEvaluator
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace
from tests.evaluators.slurm.trials import QUICK, Lines, machine
from tests.ray_nodes import RayNodes, ray_nodes

__all__ = ["ray_nodes"]

pytestmark = pytest.mark.xdist_group("ray")

LAYOUT: dict[str, Any] = {"gradient_accumulation_steps": 8, "precision": "fp32"}
SPACE = SearchSpace.build(load_model("tiny"), machine(), nodes=1, choices=LAYOUT)


def test_its_jobs_are_measured_on_ray(ray_nodes: RayNodes, tmp_path: Path) -> None:
    evaluator = RayEvaluator(
        address=ray_nodes.address,
        profile=ClusterProfile(name="here", ray=RayCluster(folder=str(tmp_path))),
        space=SPACE,
        directory=tmp_path / "trials",
        program=Lines(text=QUICK),
    )
    evaluator.submit([LAYOUT])
    (job,) = evaluator.gather("ALL")
    evaluator.close()
    assert job.objective > 0


def test_an_address_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="needs the address of a Ray cluster"):
        RayEvaluator(space=SPACE, directory=tmp_path)
