"""Names available to expressions: of a strategy, a model, a machine, and a start."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from itertools import accumulate, groupby

from autotune.cost_model.parameters import is_cpu
from evaluators.adapter.expression import Value
from search_spaces.details import Details
from search_spaces.dimensions import ACCUMULATION, DIMENSIONS, DIVIDING
from search_spaces.machine import Machine
from search_spaces.stages import chunk_layers, stage_layers
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SET_BY_AUTOTUNE = frozenset({"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
"""Variables that tell a rank its place."""

DERIVED = ("world_size", "data_parallel", "global_batch_size")
OF_MODEL = (
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "head_width",
    "vocab_size",
    "seq_length",
    "gated_mlp",
    "has_biases",
    "tied_embeddings",
    "mtp_layers",
    "window_layers",
)
OF_EXPERTS: Mapping[str, str] = {
    "num_experts": "num_experts",
    "top_k": "top_k",
    "expert_ffn_hidden_size": "ffn_hidden_size",
    "shared_ffn_hidden_size": "shared_ffn_hidden_size",
    "dense_layers": "dense_layers",
}
OF_LATENT_ATTENTION = ("kv_rank", "q_rank", "qk_head_dim", "rope_head_dim", "v_head_dim")
OF_MAMBA: Mapping[str, str] = {
    "mamba_layers": "layers",
    "mamba_heads": "num_heads",
    "mamba_head_dim": "head_dim",
    "mamba_state_size": "state_size",
    "mamba_groups": "num_groups",
    "mamba_conv_kernel": "conv_kernel",
}
OF_LAYERS = (
    *OF_EXPERTS,
    "expert_biases",
    "latent_attention",
    *OF_LATENT_ATTENTION,
    "attention_window",
    *OF_MAMBA,
)
"""Names of layer kinds that only some models have; 0 or False for other models."""
OF_DETAILS = tuple(each.name for each in fields(Details))
"""Names of a model's details; None, or the value of most models, where they are not known."""
NO_DETAILS = Details()
OF_MACHINE = ("gpus_per_node", "fast_gpus", "memory_gib", "gpu")
OF_START = ("python", "out", "folder", "iterations", "seed")
"""The interpreter on the nodes; the start's folder; the adapter's folder, in which ranks run; the
number of iterations; a seed."""

OF_FIRST = ("first_gradient_accumulation_steps", "first_global_batch_size")
OF_ONE_START = (*OF_FIRST, "first_iterations", "last_iterations")
"""Names of a start with two GAS values: the smaller one, which runs first, its batch, and the
iterations at each. All other names refer to the larger one, and `iterations` to both."""

OF_STRATEGY = (*DIMENSIONS, *DERIVED)
PATTERN = "hybrid_pattern"
"""The block of each layer of a hybrid: M, *, E or -, with | between pipeline stages; 0 for other
models."""

LAYOUT = "pipeline_layout"
"""Chunks of unequal length in Megatron Core's letters: E embeds, t is a layer, m one of multi-token
prediction, L the loss; 0 where all chunks are equal."""
OF_CHUNKS = ("chunk_layers", "first_chunk_layers", "last_chunk_layers")
"""Layers of the longest virtual stage, the first and the last."""

RANK_PARAMETERS = "rank_parameters"
"""Upper bound of the parameters of one rank before ZeRO divides them."""

EVERYWHERE = (
    *(*OF_STRATEGY, *OF_MODEL, *OF_LAYERS, PATTERN, LAYOUT, *OF_CHUNKS, RANK_PARAMETERS),
    *(*OF_DETAILS, *OF_MACHINE, "on_cpu"),
)
"""Names with a value before anything runs."""
AT_START = (*EVERYWHERE, *OF_START)

_REPLICAS = (*DIVIDING, "num_nodes")
_CHUNKS = ("pipeline_parallel", "virtual_stages")
DECIDED_BY: Mapping[str, tuple[str, ...]] = {
    "world_size": ("num_nodes",),
    "data_parallel": _REPLICAS,
    "global_batch_size": ("micro_batch_size", ACCUMULATION, *_REPLICAS),
    **dict.fromkeys((PATTERN, LAYOUT, *OF_CHUNKS), _CHUNKS),
    RANK_PARAMETERS: (*_CHUNKS, "tensor_parallel"),
}
"""Name -> the dimensions that it depends on, where it is none."""

MENTIONED_BY: Mapping[str, tuple[str, ...]] = {
    "world_size": (),
    "data_parallel": (),
    "global_batch_size": (ACCUMULATION,),
    **dict.fromkeys((PATTERN, LAYOUT, *OF_CHUNKS, RANK_PARAMETERS), ()),
}
"""Derived name -> the dimensions that a trainer varies if its adapter mentions it. A number of
replicas does not determine how the other ranks are used."""


def strategy_names(
    transformer: Transformer, machine: Machine, strategy: Strategy
) -> dict[str, Value]:
    """Return the values of `EVERYWHERE`."""
    gpus = machine.gpus_per_node
    return {
        **strategy.as_dict(),
        # Where nothing is cut, programs switch it off, or refuse it.
        "sequence_parallel": strategy.sequence_parallel and strategy.tensor_parallel > 1,
        "world_size": strategy.world_size(gpus),
        "data_parallel": strategy.data_parallel(gpus),
        "global_batch_size": strategy.global_batch_size(gpus),
        **{name: getattr(transformer, name) for name in OF_MODEL},
        **_layer_names(transformer),
        **{name: getattr(transformer.details or NO_DETAILS, name) for name in OF_DETAILS},
        PATTERN: _pattern(transformer, strategy),
        LAYOUT: _layout(transformer, strategy),
        **dict(zip(OF_CHUNKS, _chunk_lengths(transformer, strategy), strict=True)),
        RANK_PARAMETERS: rank_parameters(transformer, strategy),
        **{name: getattr(machine, name) for name in OF_MACHINE},
        "on_cpu": is_cpu(machine),
    }


def _layer_names(transformer: Transformer) -> dict[str, Value]:
    experts, latent = transformer.experts, transformer.latent_attention
    kinds = (
        (experts, OF_EXPERTS),
        (latent, dict(zip(OF_LATENT_ATTENTION, OF_LATENT_ATTENTION, strict=True))),
        (transformer.mamba, OF_MAMBA),
    )
    return {
        **dict.fromkeys(OF_LAYERS, 0),
        "latent_attention": latent is not None,
        "expert_biases": experts is not None and experts.biases,
        "attention_window": transformer.attention_window or 0,
        **{
            name: getattr(kind, field) or 0
            for kind, names in kinds
            if kind
            for name, field in names.items()
        },
    }


def _pattern(transformer: Transformer, strategy: Strategy) -> Value:
    mamba, layers = transformer.mamba, transformer.num_layers
    if mamba is None:
        return 0
    counts = {"M": mamba.layers, "*": mamba.attention_layers}
    counts["E" if transformer.experts else "-"] = layers - sum(counts.values())
    pattern = ""
    for number in range(1, layers + 1):
        behind = {kind: counts[kind] * number - pattern.count(kind) * layers for kind in counts}
        pattern += max(behind, key=behind.__getitem__)
    chunks = _chunks(transformer, strategy)
    ends = list(accumulate(chunks))
    return "|".join(pattern[end - count : end] for end, count in zip(ends, chunks, strict=True))


def _chunks(transformer: Transformer, strategy: Strategy) -> tuple[int, ...]:
    chunks = strategy.pipeline_parallel * strategy.virtual_stages
    return chunk_layers(transformer.num_layers, chunks, mtp_layers=transformer.mtp_layers)


def _chunk_lengths(transformer: Transformer, strategy: Strategy) -> tuple[int, int, int]:
    chunks = _chunks(transformer, strategy)
    return max(chunks), chunks[0], chunks[-1]


def _layout(transformer: Transformer, strategy: Strategy) -> Value:
    chunks = _chunks(transformer, strategy)
    if len(set(chunks)) == 1:
        return 0
    first, *others = ("t" * count for count in chunks)
    letters = [f"E{first}", *others]
    letters[-1] += "m" * transformer.mtp_layers + "L"
    runs = [(chunk, len(list(run))) for chunk, run in groupby(letters[:-1])]
    return "".join(f"({c}|)*{n}" if n > 1 else f"{c}|" for c, n in runs) + letters[-1]


def rank_parameters(transformer: Transformer, strategy: Strategy) -> int:
    stages, virtual = strategy.pipeline_parallel, strategy.virtual_stages
    mtp = transformer.mtp_layers
    layers = max(
        stage_layers(transformer.num_layers, stages, virtual_stages=virtual, mtp_layers=mtp)
    )
    ends = 2 * transformer.embedding_parameters + transformer.seq_length * transformer.hidden_size
    layer = max(kind.parameters for kind in transformer.kinds)
    cut = (layers * layer + ends) // strategy.tensor_parallel
    return cut + transformer.hidden_size * (transformer.seq_length + 8 * layers)


def first_names(machine: Machine, first: Strategy) -> dict[str, Value]:
    """Return the values of `OF_FIRST`, where this strategy has the first GAS."""
    return {
        "first_gradient_accumulation_steps": first.gradient_accumulation_steps,
        "first_global_batch_size": first.global_batch_size(machine.gpus_per_node),
    }
