"""Machines: GPUs, nodes and network."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A cluster of equal nodes. A *GPU* is what one rank runs on: on MI250X that is one GCD.

    Attributes:
        memory_gib: device memory of one GPU, GiB.
        peak_tflops: dense 16-bit matrix peak of one GPU, TFLOP/s; None where none is published
            (a CPU), and then no MFU is given.
        memory_bandwidth_gb_per_s: of one GPU, 10^9 bytes a second.
        intra_node_gb_per_s: one GPU to another of the same node, one direction.
        inter_node_gb_per_s: one GPU's share of its node's network, one direction.
        gpu_idle_watt, gpu_max_watt: power of one GPU idle and at its cap; host_watt: the rest of a
            node. None where not known, and then no energy is given.
        sources: where each figure was read; "from memory" where it was not.
    """

    name: str
    description: str
    gpu: str
    gpus_per_node: int
    max_nodes: int
    memory_gib: float
    peak_tflops: float | None
    memory_bandwidth_gb_per_s: float
    intra_node_gb_per_s: float
    inter_node_gb_per_s: float
    gpu_idle_watt: float | None = None
    gpu_max_watt: float | None = None
    host_watt: float | None = None
    sources: tuple[str, ...] = ()
