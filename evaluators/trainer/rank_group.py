"""Ranks that share a piece of work, and what they exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class RankGroup:
    """The ranks that share a piece of work, and this rank's place among them."""

    rank: int
    size: int
    group: dist.ProcessGroup | None

    def sum(self, tensor: Tensor) -> Tensor:
        """Add up the ranks' tensors in place."""
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def maximum(self, tensor: Tensor) -> Tensor:
        """Take the largest of the ranks' values in place."""
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tensor

    def share(self, count: int) -> tuple[int, int]:
        """Return first and one-past-last of this rank's part of `count`; the last may have less."""
        width = -(-count // self.size)
        return min(self.rank * width, count), min((self.rank + 1) * width, count)

    def swapped(self, x: Tensor) -> Tensor:
        """Exchange slices: send `x[i]` to rank i; return those received, shape (size, …) as `x`."""
        if self.size == 1:
            return x
        received = torch.empty_like(x)
        dist.all_to_all_single(received, x.contiguous(), group=self.group)
        return received


ALONE = RankGroup(0, 1, None)


def group_of(lists: Sequence[Sequence[int]]) -> RankGroup:
    """Return this rank's group of those listed, which every rank takes part in making."""
    rank, mine = dist.get_rank(), ALONE
    for ranks in lists:
        group = dist.new_group(list(ranks)) if len(ranks) > 1 else None
        if rank in ranks:
            mine = RankGroup(list(ranks).index(rank), len(ranks), group)
    return mine


class _Exchange(torch.autograd.Function):
    """Rows to the ranks that they are for; their gradients take the way back."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: list[int], received: list[int], ranks: RankGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.ranks = sent, received, ranks
        return _exchanged(rows, sent, received, ranks)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        back = _exchanged(gradients[0], ctx.received, ctx.sent, ctx.ranks)
        return back, None, None, None


def _exchanged(rows: Tensor, sent: list[int], received: list[int], ranks: RankGroup) -> Tensor:
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent, group=ranks.group)
    return result


def exchange(
    rows: Tensor, *, sent: Sequence[int], received: Sequence[int], ranks: RankGroup
) -> Tensor:
    """Return the rows that the ranks have for this one, in their order.

    Args:
        rows: those for the first rank, then those for the second, and so on.
        sent: how many are for each rank.
        received: how many come from each rank.
    """
    if ranks.size == 1:
        return rows
    return _Exchange.apply(rows, list(sent), list(received), ranks)  # type: ignore
