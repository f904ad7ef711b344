"""A real Slurm of several nodes on this machine, for the tests and for whoever is curious."""

from __future__ import annotations

from tests.cluster.cluster import Cluster

__all__ = ["Cluster"]
