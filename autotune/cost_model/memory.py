"""Memory of the fullest rank, part by part, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autotune.cost_model.layouts import GIB, Array, Layouts, total

GATHERED_BYTES = 4.0
"""For each parameter of the largest layer under ZeRO-3: its gathered weight and gradient."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes for each parameter of a rank, one entry for each strategy (or none: shape ())."""

    parameters: Array
    gradients: Array
    optimizer: Array

    @property
    def total(self) -> Array:
        return self.parameters + self.gradients + self.optimizer


def state_bytes_per_parameter(
    *, zero_stage: ArrayLike = 0, data_parallel: ArrayLike = 1, element_bytes: ArrayLike = 2
) -> StateBytes:
    """Mixed-precision Adam: 6 bytes of parameters, 4 of gradients and 8 of optimizer states.

    Parameters are a 16-bit weight and its fp32 master; gradients are accumulated in fp32; Adam
    keeps two fp32 moments (Rajbhandari et al. 2020, section 3.1, with fp32 gradients; the study's
    memory table). In fp32 (`element_bytes` 4) the weight is its own master. ZeRO divides over the
    replicas: stage 1 master and moments, stage 2 also gradients, stage 3 also weights.
    """
    stage, replicas, width = np.broadcast_arrays(
        *(np.asarray(a, dtype=np.float64) for a in (zero_stage, data_parallel, element_bytes))
    )
    over_stage_1, over_stage_2, over_stage_3 = (
        np.where(stage >= least, replicas, 1.0) for least in (1, 2, 3)
    )
    master = np.where(width < 4, 4.0, 0.0)
    return StateBytes(
        parameters=width / over_stage_3 + master / over_stage_1,
        gradients=4.0 / over_stage_2,
        optimizer=8.0 / over_stage_1,
    )


def stage_parameters(layouts: Layouts, *, first: bool, last: bool) -> Array:
    """Parameters of one rank of a stage, before ZeRO divides them, shape (n,).

    `ceil(L/p)` layers, their matrices cut by TP; the first stage holds the embeddings and the last
    one the output layer, which is a copy of the embedding where the two are tied and a pipeline
    parts them.
    """
    model, t = layouts.transformer, layouts.tensor_parallel
    layer = (model.attention_parameters + model.mlp_parameters) / t + model.vector_parameters
    parameters: Array = layouts.stage_layers * layer
    if first:
        positions = 0 if model.gated_mlp else model.seq_length * model.hidden_size
        parameters = parameters + model.embedding_parameters / t + positions
    if last and not (first and model.tied_embeddings):
        parameters = parameters + model.embedding_parameters / t
    return parameters


def fullest_stage_parameters(layouts: Layouts) -> Array:
    """Parameters of a rank on the first stage, which no other exceeds but for the positions; of
    the one stage without a pipeline."""
    whole = stage_parameters(layouts, first=True, last=True)
    first = stage_parameters(layouts, first=True, last=False)
    return np.where(layouts.has_pipeline, first, whole)


def state_memory(layouts: Layouts, parameters_of_rank: Array) -> dict[str, Array]:
    """Parameters, gradients and optimizer states of one rank."""
    per_parameter = state_bytes_per_parameter(
        zero_stage=layouts.zero_stage,
        data_parallel=layouts.data_parallel,
        element_bytes=layouts.element_bytes,
    )
    return {
        "parameters": per_parameter.parameters * parameters_of_rank,
        "gradients": per_parameter.gradients * parameters_of_rank,
        "optimizer": per_parameter.optimizer * parameters_of_rank,
    }


def layer_activations(layouts: Layouts) -> Array:
    """Activations that one layer keeps of one micro-batch, nothing recomputed.

    `s b h (10 + 24/t + 5 a s / (h t))`, all divided by t with sequence parallelism (Korthikanti et
    al. 2022, equations 2 and 4), the 24 written out for grouped heads and any MLP: query, key,
    value and attention output `4 + 4 k/a`, the MLP's inner states `4 f/h`, `6 f/h` when gated.
    """
    model, t = layouts.transformer, layouts.tensor_parallel
    attention = 4.0 + 4.0 * model.kv_size / model.hidden_size
    inner = (6.0 if model.gated_mlp else 4.0) * model.ffn_hidden_size / model.hidden_size
    of_hidden = 10.0 / layouts.sequence_shards + (attention + inner) / t
    linear = layouts.element_bytes / 2.0 * layouts.tokens * model.hidden_size * of_hidden
    return linear + score_activations(layouts)


def score_activations(layouts: Layouts) -> Array:
    """One layer's score matrix where it is stored at all, `5 a s^2 b / t`: flash attention never
    writes it."""
    model = layouts.transformer
    pairs = layouts.tokens * model.seq_length * model.num_attention_heads
    scores = 5.0 * layouts.element_bytes / 2.0 * pairs / layouts.tensor_parallel
    return np.where(layouts.flash, 0.0, scores)


def activation_memory(layouts: Layouts, *, in_flight: Array) -> Array:
    """Activations of a stage with `in_flight` micro-batches.

    Full checkpointing keeps each layer's input, `2 s b h` (cut by sequence parallelism), and one
    live layer, whose own input is among them; selective keeps the scores of one layer alone.
    """
    layer, scores = layer_activations(layouts), score_activations(layouts)
    kept_layers = layouts.stage_layers * in_flight
    inputs = layouts.hidden_bytes / layouts.sequence_shards
    full = inputs * (kept_layers - 1.0) + layer
    selective = (layer - scores) * kept_layers + scores
    return np.select(
        [layouts.full_checkpointing, layouts.selective_checkpointing],
        [full, selective],
        layer * kept_layers,
    )


def micro_batches_in_flight(layouts: Layouts) -> Array:
    """On the first stage `min(m, p)`, interleaved times `1 + (p - 1)/(p v)` (Korthikanti et al.
    2022, section 4.2.3)."""
    p, v = layouts.pipeline_parallel, layouts.virtual_stages
    interleaved = np.where(v > 1, 1.0 + (p - 1.0) / (p * v), 1.0)
    return np.minimum(layouts.micro_batches, p) * interleaved


def logits_memory(layouts: Layouts) -> Array:
    """The last stage's logits, cut by TP: Megatron's loss is parallel over the vocabulary."""
    entries = layouts.tokens * layouts.transformer.vocab_size / layouts.tensor_parallel
    return layouts.parameters.logits_bytes * entries


def gather_memory(layouts: Layouts) -> Array:
    """ZeRO-3's gathered layer: 4 bytes for each parameter of the largest, embedding included."""
    model = layouts.transformer
    largest = max(model.layer_parameters, model.embedding_parameters)
    gathered = GATHERED_BYTES * largest / layouts.tensor_parallel
    return np.where(layouts.zero_stage == 3, gathered, 0.0)


def context_memory(layouts: Layouts) -> Array:
    """What the framework takes before anything is trained: context, and communicators in use."""
    parameters = layouts.parameters
    axes = (layouts.tensor_parallel, layouts.pipeline_parallel, layouts.data_parallel)
    communicators = np.sum([axis > 1 for axis in axes], axis=0)
    return np.asarray(GIB * (parameters.context_gib + parameters.communicator_gib * communicators))


def stage_memory(layouts: Layouts, *, first: bool, last: bool) -> dict[str, Array]:
    """All parts of one rank of a stage, bytes: names as in `Estimate.memory_parts_gib`."""
    in_flight = micro_batches_in_flight(layouts) if first else np.ones_like(layouts.tokens)
    parts = state_memory(layouts, stage_parameters(layouts, first=first, last=last))
    parts["activations"] = activation_memory(layouts, in_flight=in_flight)
    parts["logits"] = logits_memory(layouts) if last else np.zeros_like(layouts.tokens)
    parts["zero3_gather"] = gather_memory(layouts)
    fragmented = total(parts) * layouts.parameters.fragmentation
    return parts | {"overhead": context_memory(layouts) + fragmented}


def memory_parts(layouts: Layouts) -> dict[str, Array]:
    """Parts of the fullest stage: without a pipeline the one, else the first or the last one.

    The first has the most micro-batches in flight, the last the logits; those between hold less
    than the first.
    """
    whole = stage_memory(layouts, first=True, last=True)
    first = stage_memory(layouts, first=True, last=False)
    last = stage_memory(layouts, first=False, last=True)
    conditions = [~layouts.has_pipeline, total(first) >= total(last)]
    return {name: np.select(conditions, [whole[name], first[name]], last[name]) for name in whole}
