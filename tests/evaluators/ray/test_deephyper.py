"""A DeepHyper search on a real Ray cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from deephyper.hpo import CBO

from evaluators.cluster.profile import ClusterProfile, RayCluster
from evaluators.ray.deephyper import RayEvaluator
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput
from search_spaces.space import SearchSpace
from tests.evaluators.slurm.trials import QUICK, Lines, machine
from tests.ray_nodes import RayNodes

pytestmark = pytest.mark.xdist_group("ray")

SPACE = SearchSpace.build(
    load_model("tiny"),
    machine(),
    nodes=1,
    choices={
        "tensor_parallel": [1, 2],
        "pipeline_parallel": 1,
        "micro_batch_size": [1, 2, 4],
        "gradient_accumulation_steps": 8,
        "zero_stage": 1,
        "num_nodes": 1,
        "precision": "fp32",
    },
)


def test_a_search_measures_on_ray(ray_nodes: RayNodes, tmp_path: Path) -> None:
    made = RayEvaluator(
        address=ray_nodes.address,
        profile=ClusterProfile(name="here", ray=RayCluster(folder=str(tmp_path))),
        space=SPACE,
        directory=tmp_path / "trials",
        num_workers=3,
        program=Lines(text=QUICK),
    )
    search = CBO(
        SPACE.problem(seed=1),
        random_state=1,
        acq_optimizer="sampling",
        log_dir=str(tmp_path),
        checkpoint_history_to_csv=False,
    )
    results = search.search(made, max_evals=4)
    assert all(float(figure) > 0 for figure in results["objective"])


def test_an_address_is_needed(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="needs the address of a Ray cluster"):
        RayEvaluator(space=SPACE, directory=tmp_path)
