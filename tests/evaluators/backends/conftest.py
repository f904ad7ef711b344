"""The places where trials run, as fixtures; `on` names those that a test is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.fixtures import idle_cluster
from tests.evaluators.backends.places import PLACES, Bundled, Jobs, OnRay, Place
from tests.ray_nodes import ray_nodes

__all__ = ["ray_nodes"]


@contextmanager
def at(name: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    place = PLACES[name](folder=folder)
    with ExitStack() as stack:
        if isinstance(place, Jobs):
            place.cluster = stack.enter_context(idle_cluster())
        if isinstance(place, OnRay):
            place.cluster = request.getfixturevalue("ray_nodes")
            place.address = place.cluster.address
        if isinstance(place, Bundled):
            place.warm = request.getfixturevalue("backend")
        with place.ends:
            yield place


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with at(request.param, tmp_path, request) as found:
        yield found


@pytest.fixture(scope="module")
def shared_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    with at(request.param, tmp_path_factory.mktemp(request.param), request) as found:
        yield found


GROUPS = {"bundled": "bundled", "sbatch": "slurm", "pilot": "slurm-pilot", "ray": "ray"}


def on(*names: str, fixture: str = "place") -> Callable[..., Any]:
    groups = {name: GROUPS.get(name, f"{name}-trials") for name in names}
    return pytest.mark.parametrize(
        fixture,
        [pytest.param(name, marks=pytest.mark.xdist_group(groups[name])) for name in names],
        indirect=True,
    )
