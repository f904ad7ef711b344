"""One real Ray cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.cluster.profile import Polling, RayCluster
from evaluators.ray.backend import RayBackend
from tests.evaluators.slurm.trials import PROFILE, QUICK, Lines
from tests.ray_nodes import RayNodes, ray_nodes

__all__ = ["make_backend", "ray_nodes"]

MakeBackend = Callable[..., RayBackend]


@pytest.fixture
def make_backend(ray_nodes: RayNodes, tmp_path: Path) -> Iterator[MakeBackend]:
    """Makes backends of a cluster, that of all tests unless another is named."""
    made: list[RayBackend] = []

    def make(text: str = QUICK, *, nodes: RayNodes = ray_nodes) -> RayBackend:
        polling = Polling(command_limit_s=6.0)
        ray = RayCluster(address=nodes.address, folder=str(tmp_path))
        profile = replace(PROFILE, ray=ray, polling=polling)
        made.append(RayBackend(profile, program=Lines(text=text)))
        return made[-1]

    yield make
    for backend in made:
        backend.close()
