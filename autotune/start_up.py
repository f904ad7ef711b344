"""Start-up time of trials, for predictions and simulation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

ONE_NODE_S = 45.0
"""Imports, process groups and the model's construction on one node of a cluster, assumed."""

PER_DOUBLING_S = 15.0
"""More of it for each doubling of the nodes: communicators and a slower file system, assumed."""

LOCAL_S = 3.0
"""On this machine, where ranks are forked from a warm process."""


def cluster_start_up_s(num_nodes: ArrayLike) -> NDArray[np.float64]:
    """Return the start-up seconds of a job on a cluster, in the shape of `num_nodes`."""
    return ONE_NODE_S + PER_DOUBLING_S * np.log2(np.asarray(num_nodes, dtype=np.float64))
