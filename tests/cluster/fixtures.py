"""Fixtures of tests on a real Slurm; a conftest imports the names it wants.

Mark such tests `pytest.mark.xdist_group("slurm")`, those of pilot mode "slurm-pilot", those
of the service "slurm-service": each group has one process, which owns a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, foreign_variables, lacking, packages
from tests.requirement import require

MakeCluster = Callable[..., Cluster]


class Shared:
    """One cluster of a process, up while anybody uses it.

    Every conftest that imports `slurm_session` makes another fixture of it.
    """

    def __init__(self) -> None:
        self._cluster = Cluster()
        self._users = 0

    def __enter__(self) -> Cluster:
        if not self._users:
            self._cluster.start()
        self._users += 1
        return self._cluster

    def __exit__(self, *_: object) -> None:
        self._users -= 1
        if not self._users:
            self._cluster.stop()


SHARED = Shared()


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[Cluster]:
    require_slurm()
    with SHARED as cluster:
        yield cluster


@pytest.fixture
def slurm(slurm_session: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """8 nodes of 8 GPUs, all idle, that this process's Slurm commands speak to."""
    slurm_session.reset()
    point_at(slurm_session, monkeypatch)
    yield slurm_session
    slurm_session.reset()


@pytest.fixture
def make_slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeCluster]:
    """Another cluster, of a shape that only this test needs (see `Shape`); the last one is used."""
    with ExitStack() as clusters:

        def make(**shape: Any) -> Cluster:
            require_slurm(accounting=bool(shape.get("accounting")))
            cluster = clusters.enter_context(Cluster(**shape))
            point_at(cluster, monkeypatch)
            return cluster

        yield make


def require_slurm(*, accounting: bool = False) -> None:
    absent = lacking(accounting=accounting)
    debian = packages(accounting=accounting)
    require(not absent, f"{', '.join(absent)} (Debian: {debian})")


def point_at(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `export`: nothing of another cluster or allocation is left in the environment."""
    for name in foreign_variables():
        monkeypatch.delenv(name)
    for name, value in cluster.environment.items():
        monkeypatch.setenv(name, value)
