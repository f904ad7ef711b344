"""Synthetic samples that depend on nothing but (seed, global sample index)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# Few tokens are frequent, as in text: the loss then falls from the first step on.
SKEW = 3.0


@dataclass
class Samples:
    """This replica's share of every global batch, the same samples however they are shared out.

    Attributes:
        consumed: samples of all replicas in the steps taken so far.
    """

    vocab_size: int
    seq_length: int
    seed: int
    replica: int
    replicas: int
    micro_batch_size: int
    consumed: int = 0

    def step(self, accumulation: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (tokens, labels) of each micro-batch, both (micro_batch_size, seq_length)."""
        first = self.consumed
        self.consumed += accumulation * self.replicas * self.micro_batch_size
        for micro_batch in range(accumulation):
            slot = micro_batch * self.replicas + self.replica
            start = first + slot * self.micro_batch_size
            rows = [self._sample(start + i) for i in range(self.micro_batch_size)]
            batch = torch.stack(rows)
            yield batch[:, :-1].contiguous(), batch[:, 1:].contiguous()

    def _sample(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        uniform = torch.rand(self.seq_length + 1, generator=generator)
        return (uniform**SKEW * self.vocab_size).long().clamp_(max=self.vocab_size - 1)
