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
    """This rank's share of every global batch, the same samples however they are shared out.

    Attributes:
        part: of `parts` of each sequence that this rank has.
        consumed: samples of all replicas in the steps taken so far.
    """

    vocab_size: int
    seq_length: int
    seed: int
    replica: int
    replicas: int
    micro_batch_size: int
    part: int = 0
    parts: int = 1
    consumed: int = 0

    @property
    def ranks(self) -> int:
        """Ranks with different tokens: every part of a sequence in every replica."""
        return self.replicas * self.parts

    def step(self, accumulation: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (tokens, labels) of each micro-batch, both (samples, seq_length / parts)."""
        first, length = self.consumed, self.seq_length // self.parts
        begin, end = self.part * length, (self.part + 1) * length
        self.consumed += accumulation * self.replicas * self.micro_batch_size
        for micro_batch in range(accumulation):
            slot = micro_batch * self.replicas + self.replica
            start = first + slot * self.micro_batch_size
            rows = [self._sample(start + i) for i in range(self.micro_batch_size)]
            batch = torch.stack(rows)
            yield batch[:, begin:end].contiguous(), batch[:, begin + 1 : end + 1].contiguous()

    def _sample(self, index: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        uniform = torch.rand(self.seq_length + 1, generator=generator)
        return (uniform**SKEW * self.vocab_size).long().clamp_(max=self.vocab_size - 1)
