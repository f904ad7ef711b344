"""Sequences cut over the context-parallel ranks (DeepSpeed-Ulysses, Jacobs et al. 2023, section 3).

Each rank has a part of every sequence. Around attention, which needs the whole, two all-to-alls
exchange it for a part of the heads and back.
"""

from __future__ import annotations

from torch import Tensor

from evaluators.trainer.rank_group import RankGroup, exchange


def whole_sequence(x: Tensor, context: RankGroup) -> Tensor:
    """Return this rank's part of the heads of the whole sequence.

    Args:
        x: all heads of this rank's part, of shape (samples, length, heads, width).
    """
    if context.size == 1:
        return x
    samples, length, heads, width = x.shape
    parts = x.view(samples, length, context.size, heads // context.size, width)
    each = [1] * context.size
    swapped = exchange(parts.permute(2, 0, 1, 3, 4), sent=each, received=each, ranks=context)
    return swapped.transpose(0, 1).reshape(samples, context.size * length, -1, width)


def part_of_sequence(x: Tensor, context: RankGroup) -> Tensor:
    """Return all heads of this rank's part: the inverse of `whole_sequence`."""
    if context.size == 1:
        return x
    samples, length, _, width = x.shape
    parts = x.view(samples, context.size, length // context.size, -1, width)
    each = [1] * context.size
    swapped = exchange(parts.transpose(0, 1), sent=each, received=each, ranks=context)
    return swapped.permute(1, 2, 0, 3, 4).reshape(samples, length // context.size, -1, width)
