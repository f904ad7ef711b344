"""Machines: GPUs, nodes and network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NARROW_PEAKS: Mapping[str, float] = {"fp8": 2.0, "mxfp8": 2.0, "nvfp4": 4.0}
"""Formats narrower than 16 bits, and how many times the 16-bit peak a GPU reaches with each where
its data sheet does not say otherwise: matrix units take twice as many elements of half the
width."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A cluster of equal nodes. A *GPU* is what one rank runs on: on MI250X that is one GCD.

    Attributes:
        memory_gib: device memory of one GPU, GiB.
        peak_tflops: dense 16-bit matrix peak of one GPU, TFLOP/s; None where none is published
            (a CPU), and then no MFU is given.
        peaks_tflops: dense peaks in narrower formats (a name of NARROW_PEAKS), TFLOP/s, where they
            are not its multiple of `peak_tflops`.
        memory_bandwidth_gb_per_s: of one GPU, 10^9 bytes a second.
        intra_node_gb_per_s: one GPU to another of the same node, or fast domain, one direction.
        inter_node_gb_per_s: one GPU's share of its node's network, one direction.
        fast_domain: GPUs that share the links of `intra_node_gb_per_s` where these reach beyond
            the node: 72 in a rack of an NVL72; None: those of a node.
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
    fast_domain: int | None = None
    peaks_tflops: Mapping[str, float] = field(default_factory=dict, hash=False)
    gpu_idle_watt: float | None = None
    gpu_max_watt: float | None = None
    host_watt: float | None = None
    sources: tuple[str, ...] = ()

    @property
    def fast_gpus(self) -> int:
        """GPUs that share the fast links: those of the fast domain, or of a node."""
        return self.fast_domain or self.gpus_per_node

    @property
    def domain_words(self) -> str:
        """The groups of GPUs that share the fast links, as sentences have them."""
        kind = "racks" if self.fast_gpus > self.gpus_per_node else "nodes"
        return f"{kind} of {self.fast_gpus} GPUs"

    def narrow_gain(self, precision: str) -> float:
        """Return how many times the 16-bit peak products in a format of NARROW_PEAKS reach."""
        told = self.peaks_tflops.get(precision)
        if told is None or self.peak_tflops is None:
            return NARROW_PEAKS[precision]
        return told / self.peak_tflops
