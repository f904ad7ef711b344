"""The constants of the cost model: each with its unit and the reason for its value.

They are general knowledge of the hardware and its libraries, not fitted to any table; the
calibration of one machine and software stack from its trials replaces them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from search_spaces.machine import Machine

PERTURBATION = 0.15
"""Standard deviation of the logarithm of each factor of `perturbed`."""

HIGHEST_FRACTION = 0.98
"""What a perturbed fraction is cut to: no machine exceeds its data sheet."""


CPU_BANDWIDTH = 200.0
"""GB/s that no rank on a CPU reaches and every GPU for training exceeds."""


def constant(default: float, *, unit: str, reason: str, fixed: bool = False) -> Any:
    """A field of `Parameters`; `fixed` ones are facts of the hardware that nobody perturbs."""
    return field(default=default, metadata={"unit": unit, "reason": reason, "fixed": fixed})


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Constants of one machine and software stack; unit "fraction" lies between 0 and 1."""

    gemm_efficiency: float = constant(
        0.65,
        unit="fraction",
        reason="large aligned GEMMs against the data-sheet peak; see FAMILIES for each GPU",
    )
    compute_units: float = constant(
        108, unit="count", reason="tiles of one GEMM that run at a time", fixed=True
    )
    gemm_depth: float = constant(
        64,
        unit="elements",
        reason="inner dimension at which a GEMM reaches half of its rate: a tile's prologue and "
        "epilogue cost about as much as 64 steps of its loop",
    )
    misaligned_gemm: float = constant(
        0.7,
        unit="fraction",
        reason="rate of a GEMM whose sharded width is no multiple of 64 (Anthony et al. 2024, "
        "'The Case for Co-Designing Model Architectures with Hardware', section 4)",
    )
    flash_efficiency: float = constant(
        0.45,
        unit="fraction",
        reason="FlashAttention-2 against the peak (Dao 2023, figures 4 to 6), operations of the "
        "causal half alone counted",
    )
    misaligned_head: float = constant(
        0.5, unit="fraction", reason="attention kernels pad a head that is no multiple of 8"
    )
    fp32_rate: float = constant(
        0.4, unit="fraction", reason="rate of fp32 (TF32) against 16-bit matrix instructions"
    )
    nominal_tflops: float = constant(
        100.0,
        unit="TFLOP/s",
        reason="16-bit peak where none is published: a GPU of the data centre's lower end",
    )
    memory_efficiency: float = constant(
        0.75, unit="fraction", reason="streaming kernels against the HBM's data-sheet bandwidth"
    )
    host_floor_s: float = constant(
        0.0004,
        unit="s",
        reason="Python and launches for one layer and one of its 3 or 4 passes: 1 to 2 ms for "
        "each layer and micro-batch in published logs",
    )
    intra_node_efficiency: float = constant(
        0.7, unit="fraction", reason="ring collectives against the link rate within a node"
    )
    inter_node_efficiency: float = constant(
        0.5, unit="fraction", reason="ring collectives against a node's injection bandwidth"
    )
    collective_latency_s: float = constant(
        10e-6, unit="s", reason="one step of a collective, for each doubling of its group"
    )
    data_parallel_overlap: float = constant(
        0.5, unit="fraction", reason="data-parallel traffic that hides behind computation"
    )
    logits_bytes: float = constant(
        10,
        unit="bytes",
        reason="for each token and vocabulary entry: 16-bit logits, their fp32 copy and its "
        "gradient; 10 to 18 in published logs",
    )
    context_gib: float = constant(
        2.0, unit="GiB", reason="device context, library workspaces and DeepSpeed's buckets"
    )
    communicator_gib: float = constant(
        0.4, unit="GiB", reason="buffers of one communicator (tensor, pipeline, data parallel)"
    )
    fragmentation: float = constant(
        0.08, unit="fraction", reason="allocator slack, of all other memory: about a tenth"
    )
    usable_memory: float = constant(
        0.95,
        unit="fraction",
        reason="of the device's memory; nearer to full the allocator thrashes or fails",
    )

    @classmethod
    def default(cls, machine: Machine) -> Parameters:
        """General knowledge of the machine's kind of GPU, found by its name."""
        if is_cpu(machine):
            return cls(**CPU)
        name = machine.gpu.casefold()
        known = (family for key, family in FAMILIES.items() if key in name)
        return cls(**next(known, {}))


def is_cpu(machine: Machine) -> bool:
    """Whether ranks are processes on a CPU: no published peak and no GPU's memory bandwidth."""
    return machine.peak_tflops is None and machine.memory_bandwidth_gb_per_s < CPU_BANDWIDTH


FAMILIES: Mapping[str, Mapping[str, float]] = {
    # MI250X: rocBLAS reaches half to 0.6 of 191.5 in training, where power caps the clock.
    "mi250": {
        "gemm_efficiency": 0.55,
        "compute_units": 110,
        "flash_efficiency": 0.25,
        "fp32_rate": 0.25,
        "inter_node_efficiency": 0.3,
    },
    # MI300X: the best of all shapes is 668 of 1307 (ml-engineering, accelerator benchmarks).
    "mi300": {
        "gemm_efficiency": 0.48,
        "compute_units": 304,
        "flash_efficiency": 0.3,
        "fp32_rate": 0.25,
        "inter_node_efficiency": 0.4,
    },
    # V100: cuBLAS comes near 100 of 125; no FlashAttention-2, older kernels do half as well.
    "v100": {
        "gemm_efficiency": 0.7,
        "compute_units": 80,
        "flash_efficiency": 0.25,
        "fp32_rate": 0.125,
    },
    # A100: the best of all shapes is 271 of 312 (ml-engineering); shapes of training less.
    "a100": {"gemm_efficiency": 0.78, "compute_units": 108, "flash_efficiency": 0.5},
    # H100, H200, GH200: the best of all shapes is 795 of 989 (ml-engineering).
    "h100": {"gemm_efficiency": 0.7, "compute_units": 132, "flash_efficiency": 0.35},
    "h200": {"gemm_efficiency": 0.7, "compute_units": 132, "flash_efficiency": 0.35},
    # A tile of PVC: training logs of ALCF give 50 to 99 of a nominal 419 overall.
    "1550": {
        "gemm_efficiency": 0.45,
        "compute_units": 64,
        "flash_efficiency": 0.2,
        "inter_node_efficiency": 0.3,
    },
}
"""What differs from the generic GPU, by a part of the GPU's name in lower case."""

CPU: Mapping[str, float] = {
    # One rank is one process on a core or two: no launch queue, no device context, and its limit
    # counts only what lies above the process's own baseline: gloo's buffers and thread stacks.
    "gemm_efficiency": 0.7,
    "compute_units": 1,
    "nominal_tflops": 0.05,  # one core with 8-wide fp32 multiply-add at about 3 GHz
    "fp32_rate": 1.0,
    "host_floor_s": 0.0003,
    "collective_latency_s": 150e-6,
    "data_parallel_overlap": 0.0,
    "context_gib": 0.02,
    "communicator_gib": 0.0,
    "logits_bytes": 16,  # all in fp32: logits, their softmax and both gradients
    "fragmentation": 0.25,  # malloc keeps no pool of blocks to use again, as a GPU's allocator does
    "usable_memory": 1.0,
}


def perturbed(parameters: Parameters, *, seed: int) -> Parameters:
    """Another plausible machine: each constant times its own log-normal factor of about 15 %.

    The same seed gives the same machine. Fractions stay below 1, facts of the hardware as they are.
    """
    generator = np.random.default_rng(seed)
    changed: dict[str, float] = {}
    for constant_field in fields(parameters):
        factor = float(np.exp(generator.normal(0.0, PERTURBATION)))
        value = getattr(parameters, constant_field.name)
        if constant_field.metadata["fixed"]:
            continue
        highest = HIGHEST_FRACTION if constant_field.metadata["unit"] == "fraction" else np.inf
        # A constant at or above the cut (a CPU's 1.0) keeps its own value as the highest.
        changed[constant_field.name] = min(value * factor, max(value, highest))
    return replace(parameters, **changed)
