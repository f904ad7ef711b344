"""Rows of a table as columns of the cost model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from autotune.cost_model.columns import Columns
from search_spaces.machine import NARROW_PEAKS
from search_spaces.traits import captured as captured_share
from search_spaces.traits import read_trait
from search_spaces.transformer import MODULES
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.tables import PublishedRow

FULL_WIDTH = {"fp32", "tf32"}
MICRO_BATCHES_FOR_EACH_STAGE = 4

ALL_DIVIDED = 3.0
"""The stage of what divides weights and gradients, too."""

ZeroStage = Callable[[PublishedRow], float]
"""The stage of a row."""


def no_zero(row: PublishedRow) -> float:
    """For times, 0 where a row does not say: a step takes about as long with ZeRO-1 as without, and
    those whose stage counts name it."""
    return _stated_stage(row, default=0.0)


def usual_zero(row: PublishedRow) -> float:
    """Where memory decides: whoever runs DeepSpeed divides the optimizer's states."""
    return _stated_stage(row, default=float("deepspeed" in row["framework"].casefold()))


def zero_of_peaks(row: PublishedRow) -> float:
    """As `usual_zero`, but InternEvo measured the peaks of its replicas under FSDP (its
    train_performance.md, column fsdp)."""
    stage = usual_zero(row)
    return ALL_DIVIDED if stage >= 1 and "internevo" in row["framework"].casefold() else stage


def _stated_stage(row: PublishedRow, *, default: float) -> float:
    """BigScience's first ZeRO runs were those of DeepSpeed's example Megatron-LM-v1.1.5-ZeRO3,
    though tables give another stage."""
    stage = row.number("zero_stage")
    if stage is None:
        return default
    divides_all = stage >= 1 and "zero (old branch)" in row["framework"].casefold()
    return ALL_DIVIDED if divides_all else stage


def columns_of(rows: Sequence[PublishedRow], facts: Facts, *, zero_stage: ZeroStage) -> Columns:
    """Rows of one stack that have a model's shape, TP, PP and a sequence length."""
    names_norms = any("RMS" in row["attention_kernel"] for row in rows)
    each = [
        facts.shape(row)
        | layer_kinds(row)
        | _strategy(row, zero_stage)
        | _switches(row)
        | recomputed_modules(row)
        | _kernels(row, names_norms)
        for row in rows
    ]
    if not each:
        return Columns.none()
    named = {name: np.array([values[name] for values in each]) for name in each[0]}
    return Columns.filled(named, rows=len(rows))


def _strategy(row: PublishedRow, zero_stage: ZeroStage) -> dict[str, float]:
    """What a row leaves out is what a launcher does without being told: 1 of everything."""
    tensor, pipeline = row.figures["tensor_parallel"], row.figures["pipeline_parallel"]
    context = row.number("context_parallel") or 1.0
    replicas = data_parallel(row)
    micro_batch, micro_batches = batches(row)
    # A batch smaller than its replicas: sequences must be cut into more parts than is said.
    cut = max(1.0, replicas / (row.number("global_batch_size") or replicas))
    replicas, context = replicas / cut, context * cut
    return {
        "tensor_parallel": tensor,
        "pipeline_parallel": pipeline,
        "context_parallel": context,
        "data_parallel": replicas,
        "world_size": row.number("num_gpus") or tensor * pipeline * context * replicas,
        "virtual_stages": row.number("virtual_stages") or 1.0,
        "micro_batch_size": micro_batch,
        "gradient_accumulation_steps": micro_batches,
        "zero_stage": zero_stage(row),
        # Sequences cut over GPUs leave each with the same weights, so ZeRO divides over those, too.
        "zero_shard_gpus": row.number("zero_shard_gpus") or replicas * context,
    }


OF_KINDS = {
    "num_experts": "num_experts",
    "moe_top_k": "top_k",
    "moe_ffn_hidden_size": "expert_ffn_hidden_size",
    "moe_shared_ffn_hidden_size": "shared_ffn_hidden_size",
    "moe_latent_size": "expert_latent_size",
    "num_dense_layers": "dense_layers",
    "kv_lora_rank": "kv_rank",
    "q_lora_rank": "q_rank",
    "qk_rope_head_dim": "rope_head_dim",
    "v_head_dim": "v_head_dim",
    "mtp_layers": "mtp_layers",
    "attention_window": "attention_window",
    "num_mamba_layers": "mamba_layers",
}
"""Columns of tables and what the cost model calls them."""

NANO_WIDTH = 2688.0

MAMBA_GROUPS, MAMBA_STATES, MAMBA_HEAD = 8.0, 128.0, 64.0
"""Of the blocks of Nemotron 3 models (NVIDIA, config.json of the models)."""


def mamba_sizes(hidden: float) -> dict[str, float]:
    """An inner width of 4096 in Nemotron 3 Nano, and twice the model's in wider ones."""
    inner = 4096.0 if hidden == NANO_WIDTH else 2.0 * hidden
    projected = 2.0 * inner + 2.0 * MAMBA_GROUPS * MAMBA_STATES + inner / MAMBA_HEAD
    return {
        "mamba_inner_size": inner,
        "mamba_projected_size": projected,
        "mamba_scan_flops": 7.0 * inner * MAMBA_STATES,
        "single_blocks": 1.0,
    }


def layer_kinds(row: PublishedRow) -> dict[str, float]:
    """What is said of layers that are not GPT's or Llama's. Windows are those of every second layer
    (GPT-OSS)."""
    kinds = {name: row.number(column) or 0.0 for column, name in OF_KINDS.items()}
    latent, hybrid = kinds["kv_rank"] > 0, kinds["mamba_layers"] > 0
    windows = row.figures["num_layers"] / 2.0 if kinds["attention_window"] else 0.0
    return {
        **kinds,
        "expert_biases": float(row["model"].startswith(BIASED)),
        "dense_layers": 0.0 if hybrid else kinds["dense_layers"],
        "qk_head_dim": (row.number("qk_head_dim") or 0.0) if latent else 0.0,
        "window_layers": windows,
        "attention_layers": (row.number("num_attention_layers") or 0.0) if hybrid else 0.0,
        **{name: hybrid * size for name, size in mamba_sizes(row.figures["hidden_size"]).items()},
        "overlapped_all_to_all": row.number("moe_a2a_overlap") or 0.0,
        "cuda_graphs": captured(row),
        "waits_for_counts": waits(row["dispatcher"]),
        "uneven_routing": ROUTING.get(row["routing"].split("-")[0], 1.0),
        "fused_experts": row.number("fused_grouped_mlp") or 0.0,
        "expert_parallel": row.number("expert_parallel") or 1.0,
        "expert_tensor_parallel": row.number("expert_tensor_parallel") or 1.0,
    }


BIASED = "GPT OSS"
"""Models whose experts have biases and a clamped activation."""

HALF_OF_THEM = 0.5
"""Waiting for the counts of tokens of rows that name no dispatcher."""

ROUTING = {
    "force": read_trait("routing", "balanced")[1],
    "natural": read_trait("routing", "natural")[1],
}
"""Routing by the first word of a row's."""


def waits(dispatcher: str) -> float:
    """Share of the waiting for the counts of tokens; DeepEP has several transports."""
    name = re.split(r"[ -]", dispatcher)[0]
    return read_trait("dispatcher", name)[1] if name else HALF_OF_THEM


ASSUMED_SHARE = 0.3
"""Share assumed for rows of models of 2026 that do not name it: the mean of the rows that do."""


def captured(row: PublishedRow) -> float:
    """Share of a step's kernels that CUDA graphs launch: of a whole step, or of some modules."""
    graphs = row["cuda_graph"]
    if not graphs and row["release"]:
        return ASSUMED_SHARE
    if graphs in ("", "none"):
        return 0.0
    if "full_iteration" in graphs:
        return read_trait("cuda_graphs", "full_iteration")[1]
    return captured_share(graphs.partition(":")[2])


OTHER_WORDS = {"norm": "layernorm", "act": "moe_act"}
"""What tables call modules otherwise."""


def modules(row: PublishedRow) -> list[str]:
    """Modules that are recomputed, as the cost model calls them."""
    named = [name for name in row["recompute_modules"].split("+") if name]
    return [OTHER_WORDS.get(name, name) for name in named]


def recomputed_modules(row: PublishedRow) -> dict[str, float]:
    named = modules(row)
    return {f"recompute_{name}": float(name in named) for name in MODULES}


def data_parallel(row: PublishedRow) -> float:
    """Replicas: as the row says, or what is left of the GPUs."""
    replicas, gpus = row.number("data_parallel"), row.number("num_gpus")
    context = row.number("context_parallel") or 1.0
    cut = row.figures["tensor_parallel"] * row.figures["pipeline_parallel"] * context
    return replicas or max(1.0, round((gpus or 1.0) / cut))


def batches(row: PublishedRow) -> tuple[float, float]:
    """Samples of a micro-batch, and micro-batches of a step on each replica.

    The global batch decides where it is known, as a time is that of the whole of it. Where neither
    it nor the accumulation is, 4 for each stage keep a pipeline reasonably full.
    """
    size = row.number("micro_batch_size") or 1.0
    samples = row.number("global_batch_size")
    count = row.number("gradient_accumulation_steps")
    if samples is not None:
        count = max(1.0, round(samples / (data_parallel(row) * size)))
    elif count is None:
        count = MICRO_BATCHES_FOR_EACH_STAGE * row.figures["pipeline_parallel"]
    if _local_batch(row):
        return 1.0, count * size
    return size, count


def samples(row: PublishedRow) -> float:
    """Of one step, all replicas together."""
    size, count = batches(row)
    return row.number("global_batch_size") or size * count * data_parallel(row)


def _local_batch(row: PublishedRow) -> bool:
    """torchtitan's "local batch size" is that of a step: a pipeline cuts it into single samples."""
    return row["framework"].casefold() == "torchtitan" and row.figures["pipeline_parallel"] > 1


def _switches(row: PublishedRow) -> dict[str, float]:
    """What is not said to be on is off, but for sequence parallelism, which experts need."""
    experts = float((row.number("num_experts") or 0.0) > 1)
    checkpointing, precision = row["activation_checkpointing"], row["precision"].casefold()
    named = modules(row)
    selective = checkpointing == "selective" and (not named or "core_attn" in named)
    return {
        "sequence_parallel": float(row.figures.get("sequence_parallel", experts) > 0),
        "flash_attention": float((row.number("flash_attention") or 0.0) > 0),
        "full_checkpointing": float(checkpointing == "full"),
        "selective_checkpointing": float(selective),
        **{name: float(precision == name) for name in NARROW_PEAKS},
        "fp32": float(precision in FULL_WIDTH),
        "fp16": float(precision == "fp16"),
    }


def _kernels(row: PublishedRow, names_norms: bool) -> dict[str, float]:
    """What the name of the attention kernel says.

    Args:
        names_norms: whether some rows of the stack name a kernel for RMSNorm: those that do not
            have none. Stacks that never mention one are taken to have it.
    """
    kernel = row["attention_kernel"]
    return {
        "unfused_softmax": float(kernel.casefold() == "torch"),
        "flash_1": float("v1" in kernel.casefold()),
        "fused_norm": float("RMS" in kernel) if names_norms else 1.0,
    }
