"""What no model predicts: repeats that differ, and labels that contradict each other."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from autotune.cost_model.columns import Array, Mask
from tests.benchmarks.accuracy.stacks import RESULTS, Stack

ORDERED = ("micro_batch_size", "activation_checkpointing", "attention_kernel", "flash_attention")
"""Columns in which more, or less, surely takes more memory."""


def noise_floor(stack: Stack, figure: str) -> float | None:
    """The error of the median of rows that agree in every column but the results."""
    repeats: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for row in stack.rows:
        if row.known(figure):
            repeats[row.without(*RESULTS)].append(row.figures[figure])
    errors: list[float] = []
    for values in repeats.values():
        if len(values) > 1:
            errors += list(np.abs(np.median(values) / np.array(values) - 1.0))
    return float(np.mean(errors)) if errors else None


def contradictions(stack: Stack, failed: Mask) -> int:
    """The fewest labels that must be wrong for the others to agree with each other.

    A strategy that fitted contradicts one that failed and is like it in everything but a smaller
    micro-batch, more checkpointing, or a kernel that stores less. The fewest that touch all such
    pairs are as many as a maximum matching has (König 1931).

    Args:
        failed: shape (n,).
    """
    rest = [row.without(*ORDERED, *RESULTS) for row in stack.rows]
    numbers = {each: number for number, each in enumerate(dict.fromkeys(rest))}
    group = np.array([numbers[each] for each in rest])
    demands = _demands(stack)
    at_least = np.all(demands[:, np.newaxis, :] >= demands[np.newaxis, :, :], axis=-1)
    pairs = (group[:, np.newaxis] == group) & at_least & ~failed[:, np.newaxis] & failed
    matched = maximum_bipartite_matching(csr_array(pairs), perm_type="column")
    return int(np.sum(matched >= 0))


def _demands(stack: Stack) -> Array:
    """What makes a strategy need more memory, shape (n, 4): larger is more."""
    columns = stack.columns
    kept = 2.0 - 2.0 * columns["full_checkpointing"] - columns["selective_checkpointing"]
    kept = kept - columns["operation_checkpointing"]
    scores = (1.0 + columns["unfused_softmax"]) * (1.0 - columns["flash_attention"])
    parts = (columns["micro_batch_size"], kept, scores, 1.0 - columns["fused_norm"])
    return np.stack([np.broadcast_to(part, len(stack)) for part in parts], axis=-1)
