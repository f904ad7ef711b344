"""One real cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import make_slurm, slurm
from tests.evaluators.slurm.trials import Backends

__all__ = ["backends", "make_slurm", "slurm"]


@pytest.fixture
def backends(slurm: Cluster) -> Iterator[Backends]:
    """On the cluster `slurm`; they are closed before it is made idle again."""
    with Backends(slurm) as made:
        yield made
