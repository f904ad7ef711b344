"""Fixtures of tests on a real Slurm; a conftest imports the names it wants.

Mark such tests `pytest.mark.xdist_group("slurm")`, those of pilot mode "slurm-pilot", those
of the service "slurm-service": each group has one process, which owns a cluster meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.cluster.cluster import Cluster, foreign_variables, lacking, packages
from tests.group_resources import Shared
from tests.requirement import require

MakeCluster = Callable[..., Cluster]


_CLUSTER = Shared(Cluster)


@contextmanager
def idle_cluster() -> Iterator[Cluster]:
    """8 nodes of 8 GPUs, all idle, that this process's Slurm commands speak to."""
    require_slurm()
    cluster = _CLUSTER.get()
    cluster.reset()
    with pytest.MonkeyPatch.context() as patch:
        point_at(cluster, patch)
        yield cluster
        cluster.reset()


@pytest.fixture
def slurm() -> Iterator[Cluster]:
    """`idle_cluster` for one test."""
    with idle_cluster() as cluster:
        yield cluster


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
