"""Constants of each kind of GPU that differ from the generic ones."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.program import Tuning

_CDNA_2 = {"gemm_efficiency": 0.47, "flash_efficiency": 0.25, "fp32_rate": 0.25}
_CDNA_3 = {
    "gemm_efficiency": 0.48,
    "compute_units": 304,
    "flash_efficiency": 0.3,
    "fp32_rate": 0.25,
    "inter_node_efficiency": 0.4,
}
_HOPPER = {"compute_units": 132, "flash_efficiency": 0.3}

_BLACKWELL = {"compute_units": 148, "gemm_depth": 150, "flash_efficiency": 0.57}

FAMILIES: Mapping[str, Mapping[str, float]] = {
    # Blackwell: the best of all shapes is 1745 of 2250 for B200 and 1822 of 2500 for GB200
    # (ml-engineering); training runs into the power cap, which is 1.4 kW for GB300 and 1.2 for
    # GB200. A compute unit is five times as fast as an A100's while stores have the same speed, so
    # partial tiles cost more. cuDNN's attention reaches about 0.65 of the peak forward and 0.55
    # backward.
    "gb300": {"gemm_efficiency": 0.71, **_BLACKWELL},
    "gb200": {"gemm_efficiency": 0.6, **_BLACKWELL},
    "b300": {"gemm_efficiency": 0.67, **_BLACKWELL},
    "b200": {"gemm_efficiency": 0.66, **_BLACKWELL},
    # MI250X: rocBLAS reaches 0.45 to 0.6 of 191.5 in training, where power caps the clock.
    "mi250": {
        **_CDNA_2,
        "compute_units": 110,
        "inter_node_efficiency": 0.3,
        "data_parallel_efficiency": 0.2,
    },
    # MI300X: the best of all shapes is 668 of 1307 (ml-engineering, accelerator benchmarks).
    "mi300": _CDNA_3,
    # The same chip as an MI300X; CDNA 4 is assumed to be similar, as no logs are known.
    "mi325": _CDNA_3,
    "mi35": {**_CDNA_3, "compute_units": 256},
    # One GCD of an MI250X, as a separate card.
    "mi210": {**_CDNA_2, "compute_units": 104},
    # V100: cuBLAS approaches 100 of 125, less in training (one GPU under Megatron-LM reaches 39
    # overall; Shoeybi et al. 2019, section 5.1); no FlashAttention-2.
    "v100": {
        "gemm_efficiency": 0.55,
        "compute_units": 80,
        "flash_efficiency": 0.3,
        "fp32_rate": 0.125,
    },
    # A100: the best of all shapes is 271 of 312 (ml-engineering); shapes of training reach less.
    "a100": {"gemm_efficiency": 0.77, "compute_units": 108, "flash_efficiency": 0.5},
    "a800": {"gemm_efficiency": 0.77, "compute_units": 108, "flash_efficiency": 0.5},
    # H100, H200, GH200: the best of all shapes is 795 of 989 (ml-engineering), and training runs
    # into the power cap; FlashAttention-2 was written for the A100.
    "h100": {"gemm_efficiency": 0.65, **_HOPPER},
    "h200": {"gemm_efficiency": 0.65, **_HOPPER},
    # One tile of a PVC: training logs of ALCF show 50 to 99 of a nominal 419 overall.
    "1550": {
        "gemm_efficiency": 0.45,
        "compute_units": 64,
        "flash_efficiency": 0.2,
        "inter_node_efficiency": 0.3,
    },
}
"""Part of the GPU's name in lower case -> constants that differ from the generic GPU's."""

# Assumed: FSDP gathers a layer at once, DeepSpeed each of its about six modules.
_FSDP_HOOKS = 1.0 / 6.0

TUNINGS: Mapping[Tuning, Mapping[str, float]] = {
    # NVIDIA's own programs tune overlaps, fusions and NCCL settings for its GPUs: published times
    # of Megatron-LM and NeMo are shorter than the constants above predict.
    "vendor": {
        "intra_node_efficiency": 1.22,
        "inter_node_efficiency": 1.22,
        # Their vocabulary-parallel loss works in place on one fp32 copy besides the 16-bit logits,
        # and of a score they store what Korthikanti et al. count.
        "logits_bytes": 6.0 / 12.0,
        "score_bytes": 5.0 / 6.0,
        "data_parallel_efficiency": 2.2,
        # Their recipes cut tensor-parallel collectives into parts and send them behind products.
        "exposed_tensor_parallel": 0.35,
        # Gradients are reduced and weights gathered bucket by bucket behind all layers.
        "exposed_data_parallel": 0.5,
        "sharded_weights_host_s": _FSDP_HOOKS,
        "expert_host": 0.5,
        # Their launchers set `expandable_segments`.
        "fragmentation": 0.4,
        "cached_share": 0.2,
    },
    "usual": {},
    # Programs on PyTorch's own kernels and collectives, with fewer fusions.
    "plain": {
        "gemm_efficiency": 0.93,
        "flash_efficiency": 0.74,
        "intra_node_efficiency": 0.67,
        "inter_node_efficiency": 0.67,
        "sharded_weights_host_s": _FSDP_HOOKS,
        "fragmentation": 0.75,
        "cached_share": 0.6,
    },
}
"""Factors on constants by how well a program is tuned, fitted jointly to ten published stacks."""

VENDOR_KERNELS: Mapping[str, Mapping[str, float]] = {
    # cuDNN's attention, which Transformer Engine uses on Hopper: 600 of 989 TFLOP/s forward with
    # heads of 128, and 550 backward (Shah et al. 2024, 'FlashAttention-3', figures 5 and 6).
    "h100": {"flash_efficiency": 0.57},
    "h200": {"flash_efficiency": 0.57},
}
"""Part of the GPU's name -> constants of vendor-tuned programs, whose kernels other programs do not
have."""

CPU: Mapping[str, float] = {
    # A rank is one process on a core or two: no launch queue and no device context. Its memory
    # limit counts only memory above the process's own baseline: gloo's buffers and thread stacks.
    "gemm_efficiency": 0.7,
    "compute_units": 1,
    "nominal_tflops": 0.05,  # one core with 8-wide fp32 multiply-add at about 3 GHz
    "fp32_rate": 1.0,
    "host_floor_s": 0.0003,
    "collective_latency_s": 150e-6,
    "exposed_transfer": 1.0,
    "exposed_data_parallel": 1.0,
    "replica_step_s": 0.0002,
    "step_overhead_s": 0.003,
    "gradient_bytes": 4.0,
    "activation_bytes": 1.0,
    "recomputed_layer": 1.0,
    "score_bytes": 5.0,
    "context_gib": 0.02,
    "communicator_gib": 0.0,
    "logits_bytes": 16,  # all in fp32: logits, their softmax and both gradients
    "fragmentation": 0.25,  # malloc has no caching pool like a GPU's allocator
    "cached_share": 0.0,
    "usable_memory": 1.0,
}
"""Constants of a rank that is a process on a CPU."""
