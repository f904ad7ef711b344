"""A mixture of experts in place of the dense MLP: no token is dropped.

Each token goes through its router's top k experts, weighted by the softmax over these k, and the
shared expert. With expert parallelism each rank has some of a layer's experts: one all-to-all sends
each token to the ranks of its experts, another one returns the results.
"""

from __future__ import annotations

from typing import Any

import torch
from deepspeed.module_inject.auto_ep_layer import AutoEPMoELayer
from deepspeed.moe.layer import MoE
from torch import Tensor, nn
from torch.nn import functional

from evaluators.trainer.layers import (
    STANDARD_DEVIATION,
    FeedForward,
    Plan,
    activated,
    copy_to_ranks,
    exchange,
    sum_over_ranks,
)
from search_spaces.layers import Experts


class RoutedExperts(nn.Module):
    """The experts of one layer that this rank has, their router, and the shared expert.

    Attributes:
        num_experts: of the layer, on all ranks; DeepSpeed reads it.
    """

    def __init__(self, plan: Plan, shape: Experts, name: str) -> None:
        # Not `super()`: subclasses inherit from DeepSpeed's layers only to be recognised by it.
        nn.Module.__init__(self)
        t, build = plan.transformer, plan.build
        self.num_experts, self.top_k = shape.num_experts, shape.top_k
        self.gated, self.ranks, self.tensor = t.gated_mlp, build.experts, build.tensor
        self.balanced = plan.balanced
        self.first_position, _ = plan.context.share(t.seq_length)
        router = (shape.num_experts, t.hidden_size)
        self.router = build.whole(f"{name}.router", router, std=STANDARD_DEVIATION)
        width = shape.ffn_hidden_size
        columns = 2 * width if t.gated_mlp else width
        first, last = self.ranks.share(shape.num_experts)
        here = [f"{name}.expert {number}" for number in range(first, last)]
        self.enter = build.of_experts(
            [f"{each}.enter" for each in here],
            (columns, t.hidden_size),
            std=STANDARD_DEVIATION,
            dim=0,
        )
        self.leave = build.of_experts(
            [f"{each}.leave" for each in here],
            (t.hidden_size, width),
            std=plan.residual_std,
            dim=1,
        )
        shared = shape.shared_ffn_hidden_size
        self.shared = FeedForward(plan, f"{name}.shared", width=shared) if shared else None

    def set_deepspeed_parallelism(self, *_: Any, **__: Any) -> None:
        """Do nothing: the groups exist before the weights, which are partitioned over them."""

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self._route(tokens, length=x.shape[1])
        order = chosen.flatten().argsort(stable=True)
        rows = copy_to_ranks(tokens, self.tensor)[order // self.top_k]
        counts = torch.bincount(chosen.flatten(), minlength=self.num_experts)
        results = self._dispatched(rows, counts) * weights.flatten()[order].unsqueeze(-1)
        mixed = torch.zeros_like(tokens).index_add(0, order // self.top_k, results).view_as(x)
        return mixed if self.shared is None else mixed + self.shared(x)

    def _route(self, tokens: Tensor, *, length: int) -> tuple[Tensor, Tensor]:
        logits = functional.linear(tokens.float(), self.router.float())
        if self.balanced:
            # By position in the sequence, so that it does not depend on context parallelism.
            places = torch.arange(length, device=tokens.device) + self.first_position
            slots = torch.arange(self.top_k, device=tokens.device)
            chosen = (places[:, None] * self.top_k + slots) % self.num_experts
            chosen = chosen.repeat(len(tokens) // length, 1)
        else:
            chosen = logits.topk(self.top_k, dim=-1).indices
        weights = logits.gather(-1, chosen).softmax(dim=-1)
        return weights.to(tokens.dtype), chosen

    def _dispatched(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Return the experts' results for rows that are ordered by expert.

        Args:
            counts: number of rows for each expert of the layer.
        """
        counts = counts.view(self.ranks.size, -1)
        arriving = self.ranks.swapped(counts)
        sent, received = counts.sum(dim=1).tolist(), arriving.sum(dim=1).tolist()
        rows = exchange(rows, sent=sent, received=received, ranks=self.ranks)
        # They arrive ordered by rank, then by expert.
        numbers = torch.arange(arriving.shape[1], device=rows.device).repeat(self.ranks.size)
        order = numbers.repeat_interleave(arriving.flatten()).argsort(stable=True)
        results = torch.empty_like(order)
        results[order] = torch.arange(len(order), device=rows.device)
        computed = self._experts(rows[order], arriving.sum(dim=0).tolist())
        return exchange(computed[results], sent=received, received=sent, ranks=self.ranks)

    def _experts(self, rows: Tensor, counts: list[int]) -> Tensor:
        parts = zip(torch.split(rows, counts), self.enter, self.leave, strict=True)
        results = torch.cat([self._expert(part, enter, leave) for part, enter, leave in parts])
        return sum_over_ranks(results, self.tensor)

    def _expert(self, rows: Tensor, enter: Tensor, leave: Tensor) -> Tensor:
        inner = activated(functional.linear(rows, enter), gated=self.gated)
        return functional.linear(inner, leave)


class DistributedExperts(RoutedExperts, MoE):  # type: ignore[misc]
    """DeepSpeed recognises these as a mixture of experts up to ZeRO 2."""


class PartitionedExperts(RoutedExperts, AutoEPMoELayer):  # type: ignore[misc]
    """DeepSpeed recognises these under ZeRO 3, which refuses `MoE`."""


def experts_of(plan: Plan, shape: Experts, name: str) -> RoutedExperts:
    """Return the experts of a layer, of the class that DeepSpeed needs.

    If every rank has all experts, DeepSpeed treats them like any other layer.
    """
    if plan.build.experts.size == 1:
        return RoutedExperts(plan, shape, name)
    kind = PartitionedExperts if plan.strategy.zero_stage == 3 else DistributedExperts
    return kind(plan, shape, name)
