"""Memory of weights, gradients and optimizer states, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autotune.cost_model.columns import Array
from autotune.cost_model.strategies import Strategies

FULL_GRADIENT_BYTES = 4.0
"""Of a gradient that no ZeRO stage touches: accumulated in fp32."""

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
    *,
    zero_stage: ArrayLike = 0,
    shards: ArrayLike = 1,
    element_bytes: ArrayLike = 2,
    gradient_bytes: ArrayLike = FULL_GRADIENT_BYTES,
    gathered: ArrayLike = False,
) -> StateBytes:
    """Mixed-precision Adam: 6 bytes of parameters, 4 of gradients and 8 of optimizer states.

    Parameters are a 16-bit weight and its fp32 master; gradients are accumulated in fp32; Adam
    keeps two fp32 moments (Rajbhandari et al. 2020, section 3.1, with fp32 gradients; the study's
    memory table). In fp32 (`element_bytes` 4) the weight is its own master. ZeRO divides over its
    `shards`: stage 1 master and moments, stage 2 also gradients, stage 3 also weights.

    Args:
        gradient_bytes: of one gradient under ZeRO, in 16-bit training.
        gathered: whether stage 3 keeps weights and gradients whole for the length of a step.
    """
    stage, over = np.asarray(zero_stage), np.asarray(shards)
    width, kept = np.asarray(element_bytes, dtype=np.float64), np.asarray(gathered)
    gradient = np.where((stage >= 1) & (width < 4), gradient_bytes, FULL_GRADIENT_BYTES)
    master = np.where(width < 4, 4.0, 0.0)
    optimizer = np.where(stage >= 1, over, 1.0)
    return StateBytes(
        parameters=width / np.where((stage >= 3) & ~kept, over, 1.0) + master / optimizer,
        gradients=gradient / np.where((stage >= 2) & ~kept, over, 1.0),
        optimizer=8.0 / optimizer,
    )


def stage_parameters(strategies: Strategies, *, first: bool, last: bool) -> Array:
    """Return the parameters of one rank of a stage, before ZeRO divides them, shape (n,).

    `ceil(L/p)` layers, their matrices cut by TP; the first stage holds the embeddings and the last
    one the output layer, which is a copy of the embedding where the two are tied and a pipeline
    parts them.
    """
    embedding = strategies.padded_vocabulary * strategies.hidden_size
    parameters = strategies.stage_layers * (
        strategies.layer_parameters + vector_parameters(strategies)
    )
    if first:
        positions = strategies.seq_length * strategies.hidden_size
        parameters = parameters + embedding + np.where(strategies.gated, 0.0, positions)
    if last and first:
        return parameters + np.where(strategies.flag("tied_embeddings"), 0.0, embedding)
    return parameters + embedding if last else parameters


def vector_parameters(strategies: Strategies) -> Array:
    """Return the parameters of norms and biases of one layer, which no rank is spared."""
    h, f = strategies.hidden_size, strategies.ffn_hidden_size
    biases = strategies.query_size + 2.0 * strategies.kv_size + f
    return np.where(strategies.gated, 2.0 * h, 6.0 * h + biases)


def fullest_stage_parameters(strategies: Strategies) -> Array:
    """Return the parameters of a rank on the first stage, which no other exceeds but for the
    positions; of the one stage without a pipeline."""
    whole = stage_parameters(strategies, first=True, last=True)
    first = stage_parameters(strategies, first=True, last=False)
    return np.where(strategies.has_pipeline, first, whole)


def state_bytes(strategies: Strategies) -> StateBytes:
    """Return bytes for each parameter of a rank, by the strategies' ZeRO stages and precisions."""
    return state_bytes_per_parameter(
        zero_stage=strategies.zero_stage,
        shards=strategies.zero_shards,
        element_bytes=strategies.element_bytes,
        gradient_bytes=strategies.parameters.gradient_bytes,
        gathered=strategies.gathered_once,
    )


def gather_memory(strategies: Strategies) -> Array:
    """Return what ZeRO-3 gathers: 4 bytes for each parameter of the largest layer or embedding."""
    embedding = strategies.padded_vocabulary * strategies.hidden_size
    largest = np.maximum(strategies.layer_parameters, embedding)
    gathers = (strategies.zero_stage == 3) & ~strategies.gathered_once
    return np.where(gathers, GATHERED_BYTES * largest, 0.0)
