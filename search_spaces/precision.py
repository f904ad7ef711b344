"""Precisions, and which GPUs compute in them."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.machine import Machine

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
