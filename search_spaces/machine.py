"""Machines: GPUs, nodes and network, and the precisions that their GPUs compute in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic.dataclasses import dataclass

from search_spaces.fields import CHECKED, Description, Label, Plausible, refusal

NARROW_PEAKS: Mapping[str, float] = {"fp8": 2.0, "mxfp8": 2.0, "nvfp4": 4.0}
"""Formats narrower than 16 bits, and how many times the 16-bit peak a GPU reaches with each where
its data sheet does not say otherwise: matrix units take twice as many elements of half the
width."""

GB_PER_S = "GB/s (10^9 bytes a second)"
BYTE_SLIPS = {"bytes per second": 1e9, "MB/s": 1e3, "TB/s": 1e-3}
PEAK = Plausible(
    minimum=0.01,
    maximum=20_000,
    unit="TFLOP/s",
    slips={"GFLOP/s": 1e3, "FLOP/s": 1e12, "PFLOP/s": 1e-3},
)
MEMORY = Plausible(
    minimum=0.01,
    maximum=2048,
    unit="GiB",
    slips={"MiB": 1024, "KiB": 1024**2, "bytes": 1024**3},
)
WATT = Plausible(minimum=0, maximum=20_000, unit="W", slips={"mW": 1e3})
GPU_WATT = Plausible(minimum=5, maximum=5000, unit="W", slips={"kW": 1e-3, "mW": 1e3})
IDLE_WATT = Plausible(minimum=0, maximum=1000, unit="W", slips={"mW": 1e3})


def _narrow(precision: str) -> str:
    if precision not in NARROW_PEAKS:
        raise refusal("no such field", valid=", ".join(NARROW_PEAKS))
    return precision


NarrowFormat = Annotated[
    str, AfterValidator(_narrow), WithJsonSchema({"type": "string", "enum": [*NARROW_PEAKS]})
]


def _speed(minimum: float, maximum: float) -> Plausible:
    return Plausible(minimum=minimum, maximum=maximum, unit=GB_PER_S, slips=BYTE_SLIPS)


# Bounds hold every machine from one CPU core to the largest announced GPU; beyond them a unit
# has been mistaken.
@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Machine:
    """A cluster of equal nodes, as in a machine file."""

    name: Label
    """Name of the machine."""
    description: Description = ""
    """The machine in a sentence."""
    gpu: Label
    """Model of its GPUs, such as H100-SXM5-80GB. One rank runs on one GPU; on MI250X, a GPU is one
    GCD."""
    gpus_per_node: Annotated[int, Plausible(maximum=144)]
    """GPUs of a node."""
    max_nodes: Annotated[int, Plausible(maximum=1_000_000)]
    """Nodes of the machine."""
    memory_gib: Annotated[float, MEMORY]
    """Memory of one GPU, GiB."""
    peak_tflops: Annotated[float, PEAK] | None = None
    """Dense 16-bit matrix peak of one GPU, TFLOP/s; null where none is published (a CPU), and then
    no MFU is given."""
    memory_bandwidth_gb_per_s: Annotated[float, _speed(5, 50_000)]
    """Memory bandwidth of one GPU, 10^9 bytes/s."""
    intra_node_gb_per_s: Annotated[float, _speed(0.1, 10_000)]
    """From one GPU to another of the same node or fast domain, in one direction, 10^9 bytes/s."""
    inter_node_gb_per_s: Annotated[float, _speed(0.01, 2000)]
    """One GPU's share of its node's network, in one direction, 10^9 bytes/s."""
    fast_domain: Annotated[
        Annotated[int, Plausible(maximum=10_000)] | None,
        Field(exclude_if=lambda gpus: gpus is None),
    ] = None
    """GPUs that share the links of `intra_node_gb_per_s` where these reach beyond the node (72 in
    an NVL72); missing or null: those of a node."""
    peaks_tflops: Annotated[
        Mapping[NarrowFormat, Annotated[float, PEAK]],
        Field(exclude_if=lambda peaks: not peaks),
    ] = field(default_factory=dict, hash=False)
    """Dense peaks of one GPU in narrower formats, TFLOP/s, where they are not twice `peak_tflops`
    in 8 bits (`fp8` with a scale for each tensor, `mxfp8` for each block of 32) and four times in 4
    (`nvfp4`, for each block of 16)."""
    gpu_idle_watt: Annotated[float, IDLE_WATT] | None = None
    """Power of one GPU that is idle, W; null where not known, and then no energy is given."""
    gpu_max_watt: Annotated[float, GPU_WATT] | None = None
    """Power of one GPU at its cap, W; null where not known, and then no energy is given."""
    host_watt: Annotated[float, WATT] | None = None
    """Power of a node without its GPUs, W; null where not known, and then no energy is given."""
    sources: Annotated[tuple[Description, ...], Field(max_length=50)] = ()
    """Where each figure was read; "from memory" where it was not."""

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
        peak = self.peaks_tflops.get(precision)
        if peak is None or self.peak_tflops is None:
            return NARROW_PEAKS[precision]
        return peak / self.peak_tflops


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
