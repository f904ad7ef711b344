"""A real Slurm for what programs run on it."""

from __future__ import annotations

from tests.cluster.fixtures import slurm, slurm_session

__all__ = ["slurm", "slurm_session"]
