"""Ranks that share a piece of work, and what they exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_to_all_single


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
    """Return this rank's group among those listed; every rank must call this."""
    rank, mine = dist.get_rank(), ALONE
    for ranks in lists:
        group = dist.new_group(list(ranks)) if len(ranks) > 1 else None
        if rank in ranks:
            mine = RankGroup(list(ranks).index(rank), len(ranks), group)
    return mine


def exchange(
    rows: Tensor, *, sent: Sequence[int], received: Sequence[int], ranks: RankGroup
) -> Tensor:
    """Exchange rows between ranks, with their gradients; return those received, in rank order.

    Args:
        rows: for the first rank, then for the second, and so on.
        sent: number of rows for each rank.
        received: number of rows from each rank.
    """
    if ranks.size == 1:
        return rows
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    exchanged: Tensor = all_to_all_single(  # type: ignore[no-untyped-call]
        result, rows.contiguous(), list(received), list(sent), group=ranks.group
    )
    return exchanged
