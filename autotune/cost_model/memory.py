"""Memory of the fullest rank, part by part, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.cost_model.layouts import GIB, Layouts, total
from autotune.cost_model.states import (
    StateBytes,
    gather_memory,
    stage_parameters,
    state_bytes,
)


def linear_activations(layouts: Layouts) -> Array:
    """Activations that one layer keeps of one micro-batch, attention scores apart.

    `s b h (10 + 24/t)`, all divided by t with sequence parallelism (Korthikanti et al. 2022,
    equations 2 and 4), the 24 written out for grouped heads and any MLP: query, key, value and
    attention output `4 + 4 k/a`, the MLP's inner states `4 f/h`, `6 f/h` when gated. Norms that are
    no single kernel keep copies in fp32.
    """
    h, t, parameters = layouts.hidden_size, layouts.tensor_parallel, layouts.parameters
    attention = 4.0 + 4.0 * layouts.kv_size / h
    inner = np.where(layouts.gated, 6.0, 4.0) * layouts.ffn_hidden_size / h
    separate = layouts.gated & ~layouts.flag("fused_norm")
    copies = np.where(separate, parameters.norm_bytes, 0.0)
    of_hidden = (10.0 + copies) / layouts.sequence_shards + (attention + inner) / t
    return parameters.activation_bytes * layouts.hidden_bytes / 2.0 * of_hidden


def score_activations(layouts: Layouts) -> Array:
    """One layer's score matrix where it is stored at all, `5 a s^2 b / t`: flash attention never
    writes it."""
    parameters = layouts.parameters
    heads = layouts.columns["num_attention_heads"]
    pairs = layouts.tokens * layouts.seq_length * heads / layouts.tensor_parallel
    unfused = layouts.flag("unfused_softmax")
    each = np.where(unfused, parameters.unfused_score_bytes, parameters.score_bytes)
    scores = each * layouts.element_bytes / 2.0 * pairs
    return np.where(layouts.flash, 0.0, scores)


def logits_memory(layouts: Layouts) -> Array:
    """The last stage's logits, cut by TP: Megatron's loss is parallel over the vocabulary."""
    return layouts.parameters.logits_bytes * layouts.tokens * layouts.padded_vocabulary


def micro_batches_in_flight(layouts: Layouts) -> Array:
    """On the first stage `min(m, p)`, interleaved times `1 + (p - 1)/(p v)` (Korthikanti et al.
    2022, section 4.2.3)."""
    p, v = layouts.pipeline_parallel, layouts.virtual_stages
    interleaved = np.where(v > 1, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.minimum(layouts.micro_batches, p) * interleaved


def checkpointed_activations(layouts: Layouts) -> tuple[Array, Array]:
    """What one layer keeps of one micro-batch, and what it would keep without checkpointing.

    Full checkpointing keeps the layer's input, `2 s b h` (cut by sequence parallelism); selective
    all but the scores; by operation its products.
    """
    linear = linear_activations(layouts)
    whole = linear + score_activations(layouts)
    kept = np.where(layouts.selective_checkpointing, linear, whole)
    kept = np.where(layouts.operation_checkpointing, kept_products(layouts), kept)
    inputs = layouts.hidden_bytes / layouts.sequence_shards
    return np.where(layouts.full_checkpointing, inputs, kept), whole


def kept_products(layouts: Layouts) -> Array:
    """A layer's input, its attention's result, and every second of its products: in `2 s b h` half
    of query, key, value, attention projection, and the MLP's two or three."""
    h = layouts.hidden_size
    inner = np.where(layouts.gated, 2.0, 1.0) * layouts.ffn_hidden_size / h
    split = 1.0 + 0.5 * (1.0 + 2.0 * layouts.kv_size / h + inner)
    whole = 1.0 + 0.5 * 2.0
    each = whole / layouts.sequence_shards + split / layouts.tensor_parallel
    return layouts.parameters.activation_bytes * layouts.hidden_bytes * each


@dataclass(frozen=True)
class Pieces:
    """Bytes that stages are put together from.

    Attributes:
        kept: what one layer keeps of one micro-batch for its backward pass.
        passing: what lives only while a layer is recomputed.
        logits: of one micro-batch; they are gone when the first layer is differentiated.
        states: for each parameter of a rank.
        gathered, context: of any stage.
    """

    kept: Array
    passing: Array
    logits: Array
    states: StateBytes
    gathered: Array
    context: Array

    @classmethod
    def of(cls, layouts: Layouts) -> Pieces:
        kept, whole = checkpointed_activations(layouts)
        lost = np.maximum(whole - kept, 0.0)
        return cls(
            kept=kept,
            passing=layouts.parameters.recomputed_layer * lost,
            logits=logits_memory(layouts),
            states=state_bytes(layouts),
            gathered=gather_memory(layouts),
            context=context_memory(layouts),
        )


def stage_memory(layouts: Layouts, pieces: Pieces, *, first: bool, last: bool) -> dict[str, Array]:
    """All parts of one rank of a stage, bytes: names as in `Estimate.memory_parts_gib`.

    The peak is at the start of the backward pass: what is kept, and the logits or the layer that is
    recomputed, whichever is more.
    """
    in_flight = micro_batches_in_flight(layouts) if first and not last else 1.0
    n = stage_parameters(layouts, first=first, last=last)
    logits = pieces.logits if last else np.zeros(())
    logits_last = logits >= pieces.passing
    parts = {
        "parameters": pieces.states.parameters * n,
        "gradients": pieces.states.gradients * n,
        "optimizer": pieces.states.optimizer * n,
        "activations": pieces.kept * (layouts.stage_layers * in_flight),
        "recomputation": np.where(logits_last, 0.0, pieces.passing),
        "logits": np.where(logits_last, logits, 0.0),
        "zero3_gather": pieces.gathered,
    }
    fragmented = total(parts) * layouts.parameters.fragmentation
    return parts | {"overhead": pieces.context + fragmented}


def context_memory(layouts: Layouts) -> Array:
    """What the framework takes before anything is trained: context, and communicators in use."""
    parameters = layouts.parameters
    communicators = (
        (layouts.tensor_parallel > 1).astype(np.float64)
        + (layouts.pipeline_parallel > 1)
        + (layouts.replicas > 1)
    )
    return GIB * (parameters.context_gib + parameters.communicator_gib * communicators)


def memory_parts(layouts: Layouts) -> dict[str, Array]:
    """Parts of the fullest stage: without a pipeline the one, else the first or the last one.

    The first has the most micro-batches in flight, the last the logits; those between hold less
    than the first.
    """
    pieces = Pieces.of(layouts)
    if not layouts.has_pipeline.any():
        return stage_memory(layouts, pieces, first=True, last=True)
    first = stage_memory(layouts, pieces, first=True, last=False)
    last = stage_memory(layouts, pieces, first=False, last=True)
    fuller = total(first) >= total(last)
    ends = {name: np.where(fuller, first[name], last[name]) for name in first}
    if layouts.has_pipeline.all():
        return ends
    whole = stage_memory(layouts, pieces, first=True, last=True)
    return {name: np.where(layouts.has_pipeline, ends[name], whole[name]) for name in whole}
