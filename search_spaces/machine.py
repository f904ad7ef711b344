"""Machines: GPUs, nodes and network, and the precisions that their GPUs compute in."""

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


FP8 = ("fp8", "fp8_current", "fp8_blockwise")
"""8-bit formats with one scale for a whole tensor, from the steps before (delayed) or the tensor
itself (current), or one for each block of 128 numbers."""

NARROW = (*FP8, "mxfp8", "nvfp4")
"""Precisions below 16 bits; the last two have one scale for 32 or 16 numbers."""

GPUS_WITH: Mapping[str, tuple[str, ...]] = {
    "fp8": ("H100", "H200", "H800", "H20", "GH200", "MI300", "MI325", "MI350", "MI355"),
    "mxfp8": ("MI350", "MI355"),
    "nvfp4": (),
}
"""Narrow format -> GPUs that compute in it, besides BLACKWELL, which has all."""

BLACKWELL = ("B200", "B300")

WITHOUT_BF16 = ("P100", "V100", "T4")  # GPUs from before Ampere


def offers_bf16(machine: Machine) -> bool:
    return not any(gpu in machine.gpu for gpu in WITHOUT_BF16)


def default_precision(machine: Machine) -> str:
    """Return bf16; fp16 on GPUs that lack it, fp32 where no 16-bit peak is known (a CPU)."""
    if machine.peak_tflops is None:
        return "fp32"
    return "bf16" if offers_bf16(machine) else "fp16"


def offers(machine: Machine, precision: str) -> bool:
    """Return whether a machine's GPU computes in a precision."""
    if precision == "bf16":
        return offers_bf16(machine)
    if precision not in NARROW:
        return True
    kind = "fp8" if precision in FP8 else precision
    named = (*GPUS_WITH[kind], *BLACKWELL)
    return kind in machine.peaks_tflops or any(gpu in machine.gpu for gpu in named)
