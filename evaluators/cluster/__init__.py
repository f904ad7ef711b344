"""Clusters: how jobs are asked for and what they need there, as TOML that a site's users share."""

from evaluators.cluster.profile import ClusterProfile

__all__ = ["ClusterProfile"]
