"""Memory of the fullest rank, part by part, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.cost_model.states import (
    StateBytes,
    gather_memory,
    stage_parameters,
    state_bytes,
)
from autotune.cost_model.strategies import GIB, Strategies, total


def linear_activations(strategies: Strategies) -> Array:
    """Return the activations that one layer keeps of one micro-batch, attention scores apart.

    `s b h (10 + 24/t)`, all divided by t with sequence parallelism (Korthikanti et al. 2022,
    equations 2 and 4), the 24 written out for grouped heads and any MLP: query, key, value and
    attention output `4 + 4 k/a`, the MLP's inner states `4 f/h`, `6 f/h` when gated. Norms that are
    no single kernel keep copies in fp32.
    """
    h, t, parameters = strategies.hidden_size, strategies.tensor_parallel, strategies.parameters
    attention = 4.0 * (strategies.query_size + strategies.kv_size) / h
    inner = np.where(strategies.gated, 6.0, 4.0) * strategies.ffn_hidden_size / h
    separate = strategies.gated & ~strategies.flag("fused_norm")
    copies = np.where(separate, parameters.norm_bytes, 0.0)
    of_hidden = (10.0 + copies) / strategies.sequence_shards + (attention + inner) / t
    return parameters.activation_bytes * strategies.hidden_bytes / 2.0 * of_hidden


def score_activations(strategies: Strategies) -> Array:
    """Return bytes of one layer's score matrix where it is stored at all, `5 a s^2 b / t`: flash
    attention never writes it."""
    parameters = strategies.parameters
    heads = strategies.columns["num_attention_heads"]
    pairs = strategies.tokens * strategies.seq_length * heads / strategies.tensor_parallel
    unfused = strategies.flag("unfused_softmax")
    bytes_each = np.where(unfused, parameters.unfused_score_bytes, parameters.score_bytes)
    scores = bytes_each * strategies.element_bytes / 2.0 * pairs
    return np.where(strategies.flash, 0.0, scores)


def logits_memory(strategies: Strategies) -> Array:
    """Return bytes of the last stage's logits, cut by TP: Megatron's loss is parallel over the
    vocabulary."""
    return strategies.parameters.logits_bytes * strategies.tokens * strategies.padded_vocabulary


def micro_batches_in_flight(strategies: Strategies) -> Array:
    """Return micro-batches on the first stage: `min(m, p)`, interleaved times `1 + (p - 1)/(p v)`
    (Korthikanti et al. 2022, section 4.2.3)."""
    p, v = strategies.pipeline_parallel, strategies.virtual_stages
    interleaved = np.where(v > 1, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.minimum(strategies.micro_batches, p) * interleaved


def checkpointed_activations(strategies: Strategies) -> tuple[Array, Array]:
    """Return what one layer keeps of one micro-batch, and what it would keep without checkpointing.

    Full checkpointing keeps the layer's input, `2 s b h` (cut by sequence parallelism); selective
    all but the scores; by operation its products.
    """
    linear = linear_activations(strategies)
    whole = linear + score_activations(strategies)
    kept = np.where(strategies.selective_checkpointing, linear, whole)
    kept = np.where(strategies.operation_checkpointing, kept_products(strategies), kept)
    inputs = strategies.hidden_bytes / strategies.sequence_shards
    return np.where(strategies.full_checkpointing, inputs, kept), whole


def kept_products(strategies: Strategies) -> Array:
    """Return bytes of a layer's input, its attention's result, and every second of its products: in
    `2 s b h` half of query, key, value, attention projection, and the MLP's two or three."""
    h = strategies.hidden_size
    inner = np.where(strategies.gated, 2.0, 1.0) * strategies.ffn_hidden_size / h
    query = strategies.query_size / h
    split = query + 0.5 * (query + 2.0 * strategies.kv_size / h + inner)
    whole = 1.0 + 0.5 * 2.0
    kept = whole / strategies.sequence_shards + split / strategies.tensor_parallel
    return strategies.parameters.activation_bytes * strategies.hidden_bytes * kept


@dataclass(frozen=True)
class StageTerms:
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
    def of(cls, strategies: Strategies) -> StageTerms:
        kept, whole = checkpointed_activations(strategies)
        lost = np.maximum(whole - kept, 0.0)
        return cls(
            kept=kept,
            passing=strategies.parameters.recomputed_layer * lost,
            logits=logits_memory(strategies),
            states=state_bytes(strategies),
            gathered=gather_memory(strategies),
            context=context_memory(strategies),
        )


def stage_memory(
    strategies: Strategies, terms: StageTerms, *, first: bool, last: bool
) -> dict[str, Array]:
    """Return all parts of one rank of a stage, bytes, named as in `Estimate.memory_parts_gib`.

    The peak is at the start of the backward pass: what is kept, and the logits or the layer that is
    recomputed, whichever is more.
    """
    in_flight = micro_batches_in_flight(strategies) if first and not last else 1.0
    n = stage_parameters(strategies, first=first, last=last)
    logits = terms.logits if last else np.zeros(())
    logits_last = logits >= terms.passing
    parts = {
        "parameters": terms.states.parameters * n,
        "gradients": terms.states.gradients * n,
        "optimizer": terms.states.optimizer * n,
        "activations": terms.kept * (strategies.stage_layers * in_flight),
        "recomputation": np.where(logits_last, 0.0, terms.passing),
        "logits": np.where(logits_last, logits, 0.0),
        "zero3_gather": terms.gathered,
    }
    fragmented = total(parts) * strategies.parameters.fragmentation
    return parts | {"overhead": terms.context + fragmented}


def context_memory(strategies: Strategies) -> Array:
    """Return what the framework takes before anything is trained: context, and communicators in
    use."""
    parameters = strategies.parameters
    communicators = (
        (strategies.tensor_parallel > 1).astype(np.float64)
        + (strategies.pipeline_parallel > 1)
        + (strategies.replicas > 1)
    )
    return GIB * (parameters.context_gib + parameters.communicator_gib * communicators)


def memory_parts(strategies: Strategies) -> dict[str, Array]:
    """Return the parts of the fullest stage: without a pipeline the one, else the first or the last
    one.

    The first has the most micro-batches in flight, the last the logits; those between hold less
    than the first.
    """
    terms = StageTerms.of(strategies)
    if not strategies.has_pipeline.any():
        return stage_memory(strategies, terms, first=True, last=True)
    first = stage_memory(strategies, terms, first=True, last=False)
    last = stage_memory(strategies, terms, first=False, last=True)
    fuller = total(first) >= total(last)
    ends = {name: np.where(fuller, first[name], last[name]) for name in first}
    if strategies.has_pipeline.all():
        return ends
    whole = stage_memory(strategies, terms, first=True, last=True)
    return {name: np.where(strategies.has_pipeline, ends[name], whole[name]) for name in whole}
