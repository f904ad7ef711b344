"""A real Slurm for what programs run on it."""

from __future__ import annotations

from tests.cluster.fixtures import slurm

__all__ = ["slurm"]
