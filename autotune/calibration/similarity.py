"""How alike two strategies are: what the formulas get wrong of one they get wrong of the other."""

from __future__ import annotations

import numpy as np

from autotune.cost_model.columns import Array, Columns

LENGTH = 2.5
"""Distance, in doublings, at which what two strategies share falls to 1/e."""

DOUBLINGS = {
    "tensor_parallel": 1.0,
    "pipeline_parallel": 1.0,
    "virtual_stages": 1.0,
    "micro_batch_size": 1.0,
    "context_parallel": 1.0,
    "seq_length": 1.0,
    "gradient_accumulation_steps": 0.5,
    "world_size": 0.5,
    "zero_shard_gpus": 0.5,
}
"""Weight of one doubling of each; accumulation and size matter less than how a model is cut."""

FLAGS = (
    "full_checkpointing",
    "selective_checkpointing",
    "operation_checkpointing",
    "sequence_parallel",
    "flash_attention",
    "flash_1",
    "unfused_softmax",
    "fused_norm",
    "fp8",
    "fp32",
)
"""Choices that are as far apart as two doublings."""


def coordinates(columns: Columns) -> Array:
    """Where strategies lie, shape (n, d): distances are in doublings."""
    size = columns["num_layers"] * columns["hidden_size"] ** 2
    axes = [
        *(weight * np.log2(columns[name]) for name, weight in DOUBLINGS.items()),
        *(2.0 * columns[name] for name in FLAGS),
        columns["zero_stage"],
        np.log2(size),
    ]
    return np.stack([np.broadcast_to(axis, len(columns)) for axis in axes], axis=-1)


def shared(one: Array, other: Array) -> Array:
    """Correlation of what is wrong, shape (n, m): exponential in the distance, so that it may
    change abruptly from one strategy to the next."""
    squares = np.sum(one**2, axis=1)[:, np.newaxis] + np.sum(other**2, axis=1)
    squared = np.maximum(squares - 2.0 * one @ other.T, 0.0)
    return np.asarray(np.exp(-np.sqrt(squared) / LENGTH))
