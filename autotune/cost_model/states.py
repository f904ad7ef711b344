"""Memory of weights, gradients and optimizer states, in bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autotune.cost_model.columns import Array
from autotune.cost_model.strategies import Strategies

FULL_GRADIENT_BYTES = 4.0
"""Bytes of a gradient without ZeRO, accumulated in fp32."""

GATHERED_BYTES = 4.0
"""Bytes per parameter of the largest layer under ZeRO-3: its gathered weight and gradient."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes per parameter of a rank, one entry per strategy (or shape ())."""

    parameters: Array
    gradients: Array
    optimizer: Array

    @property
    def total(self) -> Array:
        return self.parameters + self.gradients + self.optimizer


def state_bytes_per_parameter(
    *,
    zero_stage: ArrayLike = 0,
    shards: ArrayLike = 1,
    element_bytes: ArrayLike = 2,
    gradient_bytes: ArrayLike = FULL_GRADIENT_BYTES,
    full_gradient_bytes: ArrayLike = FULL_GRADIENT_BYTES,
    master_bytes: ArrayLike = 4.0,
    moment_bytes: ArrayLike = 4.0,
    weight_bytes: ArrayLike | None = None,
    gathered: ArrayLike = False,
    reduced_once: ArrayLike = False,
) -> StateBytes:
    """Return bytes per parameter; for mixed-precision Adam 6 of parameters, 4 of gradients and 8 of
    optimizer states.

    Parameters are a 16-bit weight and its fp32 master; gradients are accumulated in fp32; Adam has
    two fp32 moments (Rajbhandari et al. 2020, section 3.1, with fp32 gradients; the study's memory
    table). In fp32 (`element_bytes` 4) the weight is its own master. ZeRO divides by `shards`:
    master and moments from stage 1, gradients from stage 2, weights from stage 3.

    Args:
        gradient_bytes, full_gradient_bytes: of one gradient in 16-bit training, with and without
            ZeRO.
        master_bytes: of a master weight in mixed precision.
        moment_bytes: of each of the two moments.
        weight_bytes: of a weight; `element_bytes` by default.
        gathered: whether stage 3 keeps weights gathered during a step.
        reduced_once: whether it keeps gradients whole until the end of a step.
    """
    stage, over = np.asarray(zero_stage), np.asarray(shards)
    width = np.asarray(element_bytes, dtype=np.float64)
    whole_weights, whole_gradients = np.asarray(gathered), np.asarray(reduced_once)
    mixed = np.where(stage >= 1, gradient_bytes, full_gradient_bytes)
    gradient = np.where(width < 4, mixed, FULL_GRADIENT_BYTES)
    master = np.where(width < 4, master_bytes, 0.0)
    optimizer = np.where(stage >= 1, over, 1.0)
    weight = width if weight_bytes is None else np.asarray(weight_bytes)
    return StateBytes(
        parameters=weight / np.where((stage >= 3) & ~whole_weights, over, 1.0) + master / optimizer,
        gradients=gradient / np.where((stage >= 2) & ~whole_gradients, over, 1.0),
        optimizer=2.0 * np.asarray(moment_bytes) / optimizer,
    )


def stage_layers(strategies: Strategies, *, first: bool, last: bool) -> tuple[Array, Array]:
    """Return the layers of a stage with a dense MLP, and those with experts, including the layers
    of multi-token prediction on the last stage.

    A stage that is neither first nor last is the fullest of these. Dense layers come first: they
    fill the first stage, then the second; those of a hybrid are mixed.
    """
    stages = strategies.stages
    layers = stages.first if first else stages.last if last else stages.between
    predicting = strategies.columns["mtp_layers"] if last else np.zeros(())
    if not strategies.any_experts:
        return (layers + predicting if strategies.have("mtp_layers") else layers), np.zeros(())
    stage = 0.0 if first else strategies.pipeline_parallel - 1.0 if last else stages.place
    part = layers / strategies.virtual_stages
    dense = np.clip(strategies.columns["dense_layers"] - stage * part, 0.0, part)
    if strategies.have("single_blocks", "interleaved_dense"):
        mixed = (1.0 - strategies.expert_share) * layers
        is_mixed = strategies.single_blocks | strategies.flag("interleaved_dense")
        dense = np.where(is_mixed, mixed, dense)
    dense = np.where(strategies.has_experts, dense, layers + predicting)
    return dense, layers + predicting - dense


def stage_parameters(strategies: Strategies, *, first: bool, last: bool) -> Array:
    """Return the parameters of one rank of a stage before ZeRO, without routed experts, shape (n,).

    TP shards matrices. The first stage holds the embeddings and the last one the output layer, a
    copy of the embedding if the two are tied and the pipeline separates them. Multi-token
    prediction adds a projection `2 h^2` on the last stage, and needs the embedding there.
    """
    h = strategies.hidden_size
    embedding = strategies.padded_vocabulary * h
    dense, expert = stage_layers(strategies, first=first, last=last)
    if not strategies.of_equal_layers:
        every = mixer_parameters(strategies) + vector_parameters(strategies)
        parameters = dense * (every + strategies.mlp_share * mlp_parameters(strategies))
        parameters = parameters + expert * (every + unrouted_parameters(strategies))
    else:
        parameters = dense * (strategies.layer_parameters + vector_parameters(strategies))
    if first:
        positions = strategies.seq_length * h
        parameters = parameters + embedding + np.where(strategies.has_biases, positions, 0.0)
    predicting = strategies.columns["mtp_layers"]
    if last and strategies.have("mtp_layers"):
        own = h * (2.0 * h / strategies.tensor_parallel + 3.0)
        parameters = parameters + predicting * own
        if not first:
            copy = (predicting > 0) & ~strategies.flag("tied_embeddings")
            parameters = parameters + np.where(copy, embedding, 0.0)
    if last and first:
        return parameters + np.where(strategies.flag("tied_embeddings"), 0.0, embedding)
    return parameters + embedding if last else parameters


def mixer_parameters(strategies: Strategies) -> Array:
    """Return the weights of one layer on one rank outside its MLP or experts; the mean over layers
    of a hybrid."""
    attention = attention_parameters(strategies)
    if not strategies.any_mamba:
        return attention
    columns = strategies.columns
    width = columns["mamba_projected_size"] + columns["mamba_inner_size"]
    mamba = strategies.hidden_size * width / strategies.tensor_parallel
    return strategies.attention_share * attention + strategies.mamba_share * mamba


def attention_parameters(strategies: Strategies) -> Array:
    """Return the weights of one layer's attention on one rank. Latent attention's down-projections
    and an indexer are replicated on every rank (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""
    h, t = strategies.hidden_size, strategies.tensor_parallel
    gated = 2.0 + strategies.columns["attention_gate"]
    plain = h * (gated * strategies.query_size + 2.0 * strategies.kv_size) / t
    if not strategies.any_latent:
        return plain
    columns, heads = strategies.columns, strategies.columns["num_attention_heads"]
    query, kv, rope = columns["q_rank"], columns["kv_rank"], columns["rope_head_dim"]
    head, value = columns["qk_head_dim"] + rope, columns["v_head_dim"]
    down = h * (query + kv + rope) + query + kv
    if strategies.have("index_layers"):
        down = down + columns["index_layers"] / strategies.num_layers * indexer_parameters(
            strategies
        )
    up = np.where(query > 0, query, h) * heads * head
    up = up + kv * heads * (columns["qk_head_dim"] + value) + h * heads * value
    return np.where(strategies.latent, down + up / t, plain)


def indexer_parameters(strategies: Strategies) -> Array:
    """Return the weights of one indexer of sparse attention, whole on every rank."""
    columns, h = strategies.columns, strategies.hidden_size
    heads, width = columns["index_heads"], columns["index_head_dim"]
    queries = np.where(columns["q_rank"] > 0, columns["q_rank"], h) * heads * width
    return queries + h * (heads + width)


def mlp_parameters(strategies: Strategies) -> Array:
    """Return the weights of one dense MLP on one rank."""
    width = strategies.ffn_hidden_size / strategies.tensor_parallel
    return _matrices(strategies) * strategies.hidden_size * width


def unrouted_parameters(strategies: Strategies) -> Array:
    """Return the weights on one rank of one layer's shared experts, and of its router and the
    projections to and from routed experts, which are replicated."""
    columns, h = strategies.columns, strategies.hidden_size
    shared = columns["shared_ffn_hidden_size"] / strategies.tensor_parallel
    whole = columns["num_experts"] + 2.0 * columns["expert_latent_size"]
    return h * (_matrices(strategies) * shared + whole)


def routed_parameters(strategies: Strategies) -> Array:
    """Return the weights of one layer's routed experts on one rank, divided by EP and ETP."""
    columns = strategies.columns
    cut = columns["expert_parallel"] * columns["expert_tensor_parallel"]
    width = columns["num_experts"] * columns["expert_ffn_hidden_size"] / cut
    return _matrices(strategies) * strategies.expert_hidden_size * width


def _matrices(strategies: Strategies) -> Array:
    return np.where(strategies.gated, 3.0, 2.0)


def stage_routed_parameters(strategies: Strategies, *, first: bool, last: bool) -> Array:
    """Return the parameters of the routed experts of one rank of a stage, before ZeRO."""
    _, expert = stage_layers(strategies, first=first, last=last)
    return expert * routed_parameters(strategies)


def vector_parameters(strategies: Strategies) -> Array:
    """Return the parameters of norms and biases of one layer, which are replicated on every
    rank."""
    h, f = strategies.hidden_size, strategies.ffn_hidden_size
    biases = strategies.query_size + 2.0 * strategies.kv_size + f
    return np.where(strategies.has_biases, 6.0 * h + biases, strategies.blocks * h)


def fullest_stage_parameters(strategies: Strategies) -> Array:
    """Return the parameters, without routed experts, of a rank of the first stage, which others
    exceed only where they have more layers."""
    return _of_fuller(strategies, stage_parameters)


def fullest_routed_parameters(strategies: Strategies) -> Array:
    """Return the parameters of a rank's routed experts, of the same stages."""
    return _of_fuller(strategies, stage_routed_parameters)


def _of_fuller(strategies: Strategies, parameters_of: Callable[..., Array]) -> Array:
    fuller = parameters_of(strategies, first=True, last=False)
    if strategies.uneven.any():
        between = parameters_of(strategies, first=False, last=False)
        fuller = np.where(strategies.uneven, np.maximum(fuller, between), fuller)
    whole = parameters_of(strategies, first=True, last=True)
    return np.where(strategies.has_pipeline, fuller, whole)


def state_bytes(strategies: Strategies, *, shards: Array | None = None) -> StateBytes:
    """Return bytes per parameter of a rank, by the strategies' ZeRO stages and precisions.

    Args:
        shards: number of ranks that ZeRO shards over; by default that of the parameters other than
            routed experts.
    """
    parameters = strategies.parameters
    gradients = (parameters.gradient_bytes, parameters.full_gradient_bytes)
    if parameters.bf16_gradient_bytes:
        other = strategies.flag("fp16") | (strategies.zero_stage > 1)
        own = parameters.bf16_gradient_bytes
        gradients = (np.where(other, gradients[0], own), np.where(other, gradients[1], own))
    return state_bytes_per_parameter(
        zero_stage=strategies.zero_stage,
        shards=strategies.zero_shards if shards is None else shards,
        element_bytes=strategies.element_bytes,
        gradient_bytes=gradients[0],
        full_gradient_bytes=gradients[1],
        master_bytes=parameters.master_bytes,
        moment_bytes=parameters.moment_bytes,
        weight_bytes=np.where(
            strategies.flag("fp8"), parameters.fp8_weight_bytes, strategies.element_bytes
        ),
        gathered=strategies.gathered_once,
        reduced_once=strategies.reduced_once,
    )


def gather_memory(strategies: Strategies) -> Array:
    """Return the bytes that ZeRO-3 gathers: 4 per parameter of the largest layer or embedding."""
    embedding = strategies.padded_vocabulary * strategies.hidden_size
    gathering = (strategies.zero_stage == 3) & ~strategies.gathered_once
    if not gathering.any():
        return np.zeros(())
    attention = mixer_parameters(strategies)
    largest = np.maximum(attention + mlp_parameters(strategies), embedding)
    if strategies.any_experts:
        mixture = unrouted_parameters(strategies) + routed_parameters(strategies)
        largest = np.where(
            strategies.has_experts, np.maximum(attention + mixture, embedding), largest
        )
    return np.where(gathering, GATHERED_BYTES * largest, 0.0)
