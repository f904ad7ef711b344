"""Constants of the cost model, each with its unit, its justification, and its uncertainty on a
machine and software stack without measurements.

The values are typical of hardware and libraries and checked against published logs of many stacks
together; calibration fits them to one machine and stack.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.families import CPU, FAMILIES, TUNINGS, VENDOR_KERNELS
from search_spaces.machine import Machine
from search_spaces.program import USUAL_STATES, StateWidths, Tuning

Constant = float | NDArray[np.float64]
"""A number, or shape (k, 1) for k sets of constants estimated at once."""

PERTURBATION = 0.15
"""Standard deviation of the logarithm of each factor of `perturbed`."""

HIGHEST_FRACTION = 0.98
"""Upper bound of a fraction: no machine exceeds its data sheet."""

CPU_BANDWIDTH = 200.0
"""GB/s; CPU ranks are below, all GPUs for training above."""


def constant(
    default: float, *, unit: str, spread: float = 0.0, of_memory: bool = False, reason: str
) -> Any:
    """Make a field of `Parameters`.

    Args:
        spread: standard deviation of its logarithm over machines and stacks; 0 for a fact of the
            hardware, which is neither calibrated nor perturbed.
        of_memory: whether memory depends on it; time depends on all others.
    """
    metadata = {"unit": unit, "reason": reason, "spread": spread, "of_memory": of_memory}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Constants of one machine and software stack; those with unit "fraction" lie between 0 and
    1."""

    gemm_efficiency: Constant = constant(
        0.65,
        unit="fraction",
        spread=0.1,
        reason="large aligned GEMMs against the data-sheet peak; see FAMILIES for each GPU",
    )
    compute_units: Constant = constant(
        108, unit="count", reason="tiles of one GEMM that run at a time"
    )
    gemm_depth: Constant = constant(
        50,
        unit="elements",
        spread=0.5,
        reason="inner dimension at which a GEMM reaches half of its rate: a tile's prologue and "
        "epilogue cost about as much as 50 steps of its loop",
    )
    misaligned_gemm: Constant = constant(
        0.75,
        unit="fraction",
        spread=0.2,
        reason="rate of a GEMM with a width that is no multiple of 64 (Anthony et al. 2024, "
        "'The Case for Co-Designing Model Architectures with Hardware', section 4)",
    )
    odd_gemm: Constant = constant(
        0.55,
        unit="fraction",
        spread=0.4,
        reason="rate of a GEMM with a width that is no multiple of 8, which matrix units cannot "
        "take as it is (the same, section 4)",
    )
    fp8_gain: Constant = constant(
        0.95,
        unit="fraction",
        spread=0.15,
        reason="of the higher peak of 8-bit products, casts apart: power caps the clock, and "
        "cuBLAS reaches less of it than in 16 bits",
    )
    flash_efficiency: Constant = constant(
        0.5,
        unit="fraction",
        spread=0.3,
        reason="FlashAttention-2 with heads of 128 against the peak (Dao 2023, figures 4 to 6), "
        "counting only operations of the causal half",
    )
    flash_1_efficiency: Constant = constant(
        0.28,
        unit="fraction",
        spread=0.3,
        reason="FlashAttention 1 is about half as fast (Dao 2023, section 4.1)",
    )
    misaligned_head: Constant = constant(
        0.5,
        unit="fraction",
        reason="attention kernels pad a head that is no multiple of 8",
        spread=0.2,
    )
    fp32_rate: Constant = constant(
        0.07,
        unit="fraction",
        spread=0.3,
        reason="rate of fp32 against 16-bit matrix instructions; without TF32, which torch uses "
        "only when enabled",
    )
    nominal_tflops: Constant = constant(
        100.0,
        unit="TFLOP/s",
        spread=0.5,
        reason="16-bit peak where none is published: a GPU of the data centre's lower end",
    )
    memory_efficiency: Constant = constant(
        0.8,
        unit="fraction",
        spread=0.3,
        reason="streaming kernels against the HBM's data-sheet bandwidth",
    )
    score_traffic: Constant = constant(
        9.0,
        unit="bytes",
        spread=0.35,
        reason="for each score in a forward pass without flash attention: a fused softmax reads "
        "and writes 2 bytes, its dropout reads 2 and writes 2 and a mask of 1",
    )
    unfused_score_traffic: Constant = constant(
        20.0,
        unit="bytes",
        spread=0.35,
        reason="the same where scale, mask and softmax are kernels of their own, in part in fp32",
    )
    host_floor_s: Constant = constant(
        0.0007,
        unit="s",
        spread=0.5,
        reason="Python and launches for one layer and one of its 3 or 4 passes: 1 to 4 ms for "
        "each layer and micro-batch in published logs",
    )
    tensor_parallel_host: Constant = constant(
        0.1,
        unit="fraction",
        spread=0.5,
        reason="more of the host's work where each layer launches collectives, too",
    )
    intra_node_efficiency: Constant = constant(
        0.75,
        unit="fraction",
        spread=0.6,
        reason="ring collectives against the link rate within a node (NCCL's bus bandwidth)",
    )
    inter_node_efficiency: Constant = constant(
        0.7,
        unit="fraction",
        spread=0.6,
        reason="ring collectives against a node's injection bandwidth",
    )
    collective_latency_s: Constant = constant(
        15e-6, unit="s", spread=0.7, reason="one step of a collective, for each doubling of a group"
    )
    pipeline_efficiency: Constant = constant(
        0.7,
        unit="fraction",
        spread=0.6,
        reason="a transfer between stages against a GPU's share of the network",
    )
    pipeline_latency_s: Constant = constant(
        60e-6,
        unit="s",
        spread=1.0,
        reason="a transfer between stages is waited for by both: two kernels and the wire",
    )
    exposed_transfer: Constant = constant(
        0.4,
        unit="fraction",
        spread=0.5,
        reason="of transfers between interleaved stages, what does not run behind another virtual "
        "stage's computation (Megatron-LM overlaps them there, and only there)",
    )
    data_parallel_efficiency: Constant = constant(
        0.35,
        unit="fraction",
        spread=0.7,
        reason="replicas' collectives over the network: all GPUs of all nodes at once, while "
        "others use it (on Frontier's RCCL far less is reported)",
    )
    exposed_data_parallel: Constant = constant(
        0.7,
        unit="fraction",
        spread=0.5,
        reason="data-parallel traffic that computation does not hide",
    )
    replica_step_s: Constant = constant(
        0.003,
        unit="s",
        spread=1.2,
        reason="once in a step for each doubling of replicas beyond those of a node or rack: "
        "collectives take more steps, and a logarithm of them since NCCL has trees",
    )
    straggling: Constant = constant(
        0.004,
        unit="fraction",
        spread=0.9,
        reason="for each doubling of nodes: all wait for the slowest, and equal GPUs differ by 8 % "
        "(Sinha et al. 2022); published weak-scaling curves up to 2,048 GPUs lose 0.0 to 1.4 %",
    )
    optimizer_efficiency: Constant = constant(
        0.6,
        unit="fraction",
        spread=0.5,
        reason="the optimizer's kernels against streaming ones",
    )
    step_overhead_s: Constant = constant(
        0.03,
        unit="s",
        spread=1.0,
        reason="once in a step: data, norm of the gradients, loss scale, logging",
    )
    gradient_bytes: Constant = constant(
        2.8,
        unit="bytes",
        spread=0.4,
        of_memory=True,
        reason="of one gradient under ZeRO: 2 where they stay in 16 bits, 4 where they are "
        "accumulated in fp32, between them where that is not known",
    )
    activation_bytes: Constant = constant(
        1.0,
        unit="ratio",
        spread=0.25,
        of_memory=True,
        reason="stored activations against the count of Korthikanti et al.: dropout masks that a "
        "stack does without, copies that it makes",
    )
    norm_bytes: Constant = constant(
        10.0,
        unit="bytes",
        spread=0.6,
        of_memory=True,
        reason="for each element of a gated model's hidden state, where its norms are no kernels "
        "of their own: two norms keep their input and result in fp32",
    )
    score_bytes: Constant = constant(
        6.0,
        unit="bytes",
        spread=0.3,
        of_memory=True,
        reason="stored for each attention score: softmax and dropout results and a mask "
        "(Korthikanti et al.: 5), and what a library adds",
    )
    unfused_score_bytes: Constant = constant(
        11.0,
        unit="bytes",
        spread=0.3,
        of_memory=True,
        reason="the same without fused kernels, in part in fp32",
    )
    recomputed_layer: Constant = constant(
        2.0,
        unit="ratio",
        spread=0.5,
        of_memory=True,
        reason="a layer while it is recomputed and differentiated against what it would store: "
        "its gradients and activations live at once",
    )
    logits_bytes: Constant = constant(
        12.0,
        unit="bytes",
        spread=0.35,
        of_memory=True,
        reason="for each token and vocabulary entry: 16-bit logits, their fp32 copy and its "
        "gradient; 10 to 18 in published logs",
    )
    context_gib: Constant = constant(
        1.0,
        unit="GiB",
        spread=0.5,
        of_memory=True,
        reason="device context and library workspaces",
    )
    communicator_gib: Constant = constant(
        0.5,
        unit="GiB",
        spread=0.7,
        of_memory=True,
        reason="buffers of one communicator (tensor, pipeline, data parallel)",
    )
    fragmentation: Constant = constant(
        0.2,
        unit="fraction",
        spread=0.5,
        of_memory=True,
        reason="gaps between blocks, of what each step allocates and frees: activations, logits "
        "and gathered weights; weights and states stay where they are",
    )
    usable_memory: Constant = constant(
        0.96,
        unit="fraction",
        spread=0.03,
        of_memory=True,
        reason="of the device's memory; all predictions leave the rest, for nearer to full the "
        "allocator thrashes or fails",
    )
    # Later constants are appended, so that a seed of `perturbed` keeps its meaning.
    fp4_gain: Constant = constant(
        0.7,
        unit="fraction",
        spread=0.15,
        reason="of the higher peak of 4-bit products: some layers and weight gradients stay wider "
        "(NVIDIA 2025, 'Pretraining Large Language Models with NVFP4', arXiv 2509.25149)",
    )
    cast_bytes: Constant = constant(
        4.0,
        unit="bytes",
        spread=0.3,
        reason="of memory traffic for each element that is made narrow: read, and "
        "written twice, as it is and transposed, with its scales",
    )
    grouped_gemm: Constant = constant(
        0.65,
        unit="fraction",
        spread=0.3,
        reason="rate of one kernel for the products of all experts against one product of as many "
        "tokens; what falls with the tokens of an expert comes on top",
    )
    permutation_passes: Constant = constant(
        8.0,
        unit="ratio",
        spread=0.6,
        reason="reads and writes of each routed token's hidden state in a forward pass with an "
        "all-to-all: into the order of experts, out of what was received, and back into that of "
        "tokens; half of them with DeepEP and HybridEP, which permute once each way "
        "(Megatron-LM's token_dispatcher.py)",
    )
    all_to_all_efficiency: Constant = constant(
        0.75,
        unit="fraction",
        spread=0.6,
        reason="of links and network where all ranks send tokens to all others (the README of "
        "DeepEP: 153 of 160 GB/s of NVLink, 43 to 58 of 50 of the network)",
    )
    exposed_all_to_all: Constant = constant(
        0.8,
        unit="fraction",
        spread=0.3,
        reason="of sending tokens to experts, what no computation hides",
    )
    expert_host: Constant = constant(
        6.0,
        unit="ratio",
        spread=0.6,
        reason="more of the host's work in a layer with experts: routing, permutation, dispatch; "
        "half of it where the vendor fuses them",
    )
    expert_load: Constant = constant(
        1.1,
        unit="ratio",
        spread=0.15,
        reason="tokens of the fullest rank against an even share, layer by layer and in a mean "
        "step: in each layer all wait for another rank; 1 where a program forces balance, about "
        "1.2 where routing is natural",
    )
    full_gradient_bytes: Constant = constant(
        4.0,
        unit="bytes",
        of_memory=True,
        reason="of one gradient that no ZeRO stage touches: accumulated in fp32 unless the program "
        "says otherwise",
    )
    master_bytes: Constant = constant(
        4.0, unit="bytes", of_memory=True, reason="of a master weight in mixed precision: fp32"
    )
    moment_bytes: Constant = constant(
        4.0, unit="bytes", of_memory=True, reason="of each of Adam's two moments: fp32"
    )
    fp8_weight_bytes: Constant = constant(
        2.0,
        unit="bytes",
        of_memory=True,
        reason="of a weight whose products take it in 8 bits: 2 where it is cast, 1 where "
        "the program gathers it in 8 bits",
    )
    gated_activation_bytes: Constant = constant(
        6.0,
        unit="bytes",
        of_memory=True,
        reason="stored for each token and unit of a gated MLP's width in 16 bits: two products "
        "and the activation's result; without a fused kernel 8 (what autograd keeps of PyTorch's "
        "SiLU and product) or 10 (Megatron Core 2a75ac12, which also copies one of the products)",
    )
    routing_imbalance: Constant = constant(
        1.1,
        unit="ratio",
        spread=0.15,
        of_memory=True,
        reason="tokens of the fullest rank against an even share, summed over its layers and in "
        "the fullest step, which is what a peak shows. It is not `expert_load`: one rank's hot and "
        "cold layers cancel, and the fullest step is not the mean one",
    )
    sharded_weights_host_s: Constant = constant(
        0.008,
        unit="s",
        spread=0.7,
        reason="more of the host's work for one layer where ZeRO 3 gathers and releases each "
        "module: 8 ms with DeepSpeed 0.19 on the host of an H200 (docs/measurement.md)",
    )
    exposed_tensor_parallel: Constant = constant(
        1.0,
        unit="fraction",
        spread=0.3,
        reason="of tensor-parallel collectives with sequence parallelism, what matrix products do "
        "not hide; a program that cuts both into parts overlaps them",
    )
    selective_by_operation: Constant = constant(
        0.0, unit="switch", reason="whether selective checkpointing keeps every second product"
    )
    loss_tokens: Constant = constant(
        0.0, unit="tokens", reason="whose logits a loss in chunks keeps at once; 0: all"
    )
    offloaded_inputs: Constant = constant(
        0.0, unit="share", reason="of the inputs of recomputed layers, what the host keeps"
    )
    expert_loop: Constant = constant(
        0.0, unit="switch", reason="whether each expert runs as a module of its own"
    )
    waits_for_counts: Constant = constant(
        1.0, unit="switch", reason="whether the host waits for the counts of routed tokens"
    )
    cuda_graphs: Constant = constant(
        0.0, unit="share", reason="of a step's kernels, what CUDA graphs launch"
    )
    uneven_routing: Constant = constant(
        1.0, unit="ratio", reason="0 where balance is forced, 2 where routing is natural"
    )
    expert_module_s: Constant = constant(
        0.0012,
        unit="s",
        spread=1.0,
        reason="of the host for each of an expert's matrices and each pass, where ZeRO 3 gathers "
        "and releases them one by one: Qwen3-30B-A3B under DeepSpeed on 16 A800 took 91 s a step",
    )
    expert_launch_s: Constant = constant(
        0.0001,
        unit="s",
        spread=0.7,
        reason="of the host for an expert that runs on its own, in each pass: its tokens are "
        "selected, pass three products and are added, in about ten kernels",
    )
    bf16_gradient_bytes: Constant = constant(
        0.0,
        unit="bytes",
        of_memory=True,
        reason="of a gradient in bf16 below ZeRO 2, where it differs; 0: it does not",
    )
    cached_share: Constant = constant(
        0.12,
        unit="fraction",
        spread=0.6,
        of_memory=True,
        reason="of the device, freed blocks that torch's allocator keeps as long as there is room: "
        "9 to 10 of 64 GiB above what is allocated at every scale of LUMI's runs; they show in "
        "reserved memory, but do not decide whether a strategy fits",
    )
    fused_experts: Constant = constant(
        0.0, unit="switch", reason="whether the products of experts apply their activation"
    )
    keeps_gathered: Constant = constant(
        0.0,
        unit="switch",
        reason="whether ZeRO 3 gathers the weights of a pipeline's stage once per step and keeps "
        "them (FSDP's reshard_after_forward off), not for each pass of a micro-batch",
    )
    longer_stages_first: Constant = constant(
        0.0,
        unit="switch",
        reason="whether the first of unequal pipeline stages are the longer ones",
    )

    offloaded_states: Constant = constant(
        0.0, unit="share", reason="of weights, gradients and optimizer states, what the host keeps"
    )
    mlp_tokens: Constant = constant(
        0.0, unit="tokens", reason="that an MLP takes at once; 0: all of a micro-batch"
    )
    recomputed_layers: Constant = constant(
        0.0, unit="layers", reason="of a virtual stage, that full checkpointing recomputes; 0: all"
    )

    def usable_gib(self, machine: Machine) -> float:
        """Return the memory of one GPU that a peak may use, without the reserve of `usable_memory`.
        Every statement about fitting uses this limit."""
        return machine.memory_gib * float(self.usable_memory)

    @classmethod
    def default(
        cls, machine: Machine, tuning: Tuning = "usual", states: StateWidths = USUAL_STATES
    ) -> Parameters:
        """Return the default constants for a GPU of this name, and for trainers with this tuning
        and these states."""
        widths = {name: width for name, width in vars(states).items() if width is not None}
        cudnn = bool(widths.pop("vendor_attention")) or tuning == "vendor"
        # Of programs that do not say, DeepSpeed's gather experts one by one.
        if not widths.get("expert_loop", tuning == "usual"):
            widths["expert_module_s"] = 0.0
        if "gradient_bytes" in widths:
            widths["full_gradient_bytes"] = widths["gradient_bytes"]
        if is_cpu(machine):
            return cls(**{**CPU, **widths})
        name = machine.gpu.casefold()
        known = (family for key, family in FAMILIES.items() if key in name)
        kernels = (own for key, own in VENDOR_KERNELS.items() if key in name)
        vendor = next(kernels, {}) if cudnn else {}
        generic = cls(**{**next(known, {}), **vendor, **widths})
        return replace(
            generic,
            **{
                name: min(getattr(generic, name) * factor, _highest(name))
                for name, factor in TUNINGS[tuning].items()
                if name not in vendor
            },
        )


def prior_spread(name: str) -> float:
    """Return the prior standard deviation of the logarithm of a constant."""
    return float(Parameters.__dataclass_fields__[name].metadata["spread"])


def is_cpu(machine: Machine) -> bool:
    """Return whether ranks are processes on a CPU: no published peak and no GPU memory
    bandwidth."""
    return machine.peak_tflops is None and machine.memory_bandwidth_gb_per_s < CPU_BANDWIDTH


def perturbed(parameters: Parameters, *, seed: int) -> Parameters:
    """Return the constants of another plausible machine: each multiplied by its own log-normal
    factor of about 15 %.

    Deterministic in the seed. Fractions stay below 1, and facts of the hardware are unchanged.
    Factors are drawn in the order of the fields, so new constants must be appended.
    """
    generator = np.random.default_rng(seed)
    changed: dict[str, float] = {}
    for constant_field in fields(parameters):
        factor = float(np.exp(generator.normal(0.0, PERTURBATION)))
        value = float(getattr(parameters, constant_field.name))
        if not constant_field.metadata["spread"]:
            continue
        # A constant at or above the bound (a CPU's 1.0) has its own value as upper bound.
        changed[constant_field.name] = min(
            value * factor, max(value, _highest(constant_field.name))
        )
    return replace(parameters, **changed)


def _highest(name: str) -> float:
    unit = Parameters.__dataclass_fields__[name].metadata["unit"]
    return HIGHEST_FRACTION if unit == "fraction" else np.inf
