"""Memory of weights, gradients and optimizer states, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from autotune.cost_model.columns import Array
from autotune.cost_model.layouts import Layouts

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


def stage_parameters(layouts: Layouts, *, first: bool, last: bool) -> Array:
    """Parameters of one rank of a stage, before ZeRO divides them, shape (n,).

    `ceil(L/p)` layers, their matrices cut by TP; the first stage holds the embeddings and the last
    one the output layer, which is a copy of the embedding where the two are tied and a pipeline
    parts them.
    """
    embedding = layouts.padded_vocabulary * layouts.hidden_size
    parameters = layouts.stage_layers * (layouts.layer_parameters + vector_parameters(layouts))
    if first:
        positions = layouts.seq_length * layouts.hidden_size
        parameters = parameters + embedding + np.where(layouts.gated, 0.0, positions)
    if last and first:
        return parameters + np.where(layouts.flag("tied_embeddings"), 0.0, embedding)
    return parameters + embedding if last else parameters


def vector_parameters(layouts: Layouts) -> Array:
    """Norms and biases of one layer, which no rank is spared."""
    h, f = layouts.hidden_size, layouts.ffn_hidden_size
    return np.where(layouts.gated, 2.0 * h, 7.0 * h + 2.0 * layouts.kv_size + f)


def fullest_stage_parameters(layouts: Layouts) -> Array:
    """Parameters of a rank on the first stage, which no other exceeds but for the positions; of
    the one stage without a pipeline."""
    whole = stage_parameters(layouts, first=True, last=True)
    first = stage_parameters(layouts, first=True, last=False)
    return np.where(layouts.has_pipeline, first, whole)


def state_bytes(layouts: Layouts) -> StateBytes:
    """For each parameter of a rank, as the strategies' ZeRO stages and precisions have it."""
    return state_bytes_per_parameter(
        zero_stage=layouts.zero_stage,
        shards=layouts.zero_shards,
        element_bytes=layouts.element_bytes,
        gradient_bytes=layouts.parameters.gradient_bytes,
        gathered=layouts.gathered_once,
    )


def gather_memory(layouts: Layouts) -> Array:
    """ZeRO-3's gathered layer: 4 bytes for each parameter of the largest, embedding included."""
    embedding = layouts.padded_vocabulary * layouts.hidden_size
    largest = np.maximum(layouts.layer_parameters, embedding)
    gathers = (layouts.zero_stage == 3) & ~layouts.gathered_once
    return np.where(gathers, GATHERED_BYTES * largest, 0.0)
