"""Layers cut over the tensor-parallel ranks, as in Megatron (Shoeybi et al. 2019, section 3).

Every weight is drawn whole from a generator seeded by (seed, name) and then cut, so that a layer
holds the same numbers however it is laid out.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from deepspeed.utils import groups
from torch import Tensor, nn
from torch.distributed.nn.functional import all_to_all_single
from torch.nn import functional

from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True)
class RankGroup:
    """The ranks that share a piece of work, and this rank's place among them."""

    rank: int
    size: int
    group: dist.ProcessGroup | None

    def sum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(tensor, group=self.group)
        return tensor

    def maximum(self, tensor: Tensor) -> Tensor:
        if self.size > 1:
            dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self.group)
        return tensor

    def share(self, count: int) -> tuple[int, int]:
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


@dataclass(frozen=True)
class Build:
    """How weights are created: device, precision, seed, and the ranks that share them.

    Attributes:
        experts: the ranks that share the experts of a layer.
    """

    tensor: RankGroup
    experts: RankGroup
    device: torch.device
    dtype: torch.dtype
    seed: int

    def cut(self, name: str, shape: tuple[int, int], *, std: float, dim: int) -> nn.Parameter:
        start, stop = self.tensor.share(shape[dim])
        part = self._drawn(name, shape, std).narrow(dim, start, stop - start)
        return self._flagged(part, cut=True)

    def of_experts(
        self, names: Sequence[str], shape: tuple[int, int], *, std: float, dim: int
    ) -> nn.Parameter:
        """Return this rank's part, along `dim`, of a normal matrix for each of its experts."""
        start, stop = self.tensor.share(shape[dim])
        parts = [self._drawn(name, shape, std).narrow(dim, start, stop - start) for name in names]
        parameter = self._flagged(torch.stack(parts), cut=True)
        if self.experts.size > 1:
            mark_of_experts(parameter, self.experts.size)
        return parameter

    def whole(self, name: str, shape: tuple[int, ...], *, std: float) -> nn.Parameter:
        return self._flagged(self._drawn(name, shape, std), cut=False)

    def constant(self, size: int, value: float, *, cut: bool = False) -> nn.Parameter:
        start, stop = self.tensor.share(size) if cut else (0, size)
        return self._flagged(torch.full((stop - start,), value, device="cpu"), cut=cut)

    def _drawn(self, name: str, shape: tuple[int, ...], std: float) -> Tensor:
        # On the GPU: one thread of a host takes 30 s for a billion weights.
        generator = torch.Generator(self.device)
        generator.manual_seed(self.seed * 1_000_003 + zlib.crc32(name.encode()))
        return torch.empty(shape, device=self.device).normal_(0.0, std, generator=generator)

    def _flagged(self, values: Tensor, *, cut: bool) -> nn.Parameter:
        # DeepSpeed's gradient norm ignores unflagged parameters of later pipeline stages. A
        # replicated parameter must count once, so only on the first rank.
        placed = values.to(device=self.device, dtype=self.dtype, copy=True)
        parameter = nn.Parameter(placed.contiguous())
        parameter.model_parallel = cut or self.tensor.rank == 0  # type: ignore[attr-defined]
        return parameter


STANDARD_DEVIATION = 0.02


@dataclass(frozen=True)
class Plan:
    """The model's shape, its layout, and how weights are made.

    Attributes:
        context: the ranks that share each sequence.
        balanced: whether tokens are distributed evenly to the experts, not by the router.
    """

    transformer: Transformer
    strategy: Strategy
    build: Build
    context: RankGroup
    balanced: bool = False

    @property
    def residual_std(self) -> float:
        return STANDARD_DEVIATION / math.sqrt(2 * self.transformer.num_layers)

    @property
    def bias(self) -> bool:
        return self.transformer.has_biases


def expert_group_name(expert_parallel: int) -> str:
    return f"ep_size_{expert_parallel}"


def mark_of_experts(parameter: nn.Parameter, expert_parallel: int) -> None:
    """Tell DeepSpeed that only the ranks with the same experts share a parameter.

    It reads the first two attributes up to ZeRO 2, and the others under ZeRO 3.
    """
    name = expert_group_name(expert_parallel)
    attributes = {
        "allreduce": False,
        "group_name": name,
        "ds_zero_placement_family": "autoep_expert",
        "ds_zero_partition_group_name": name,
        "ds_zero_partition_process_group": groups._get_expert_data_parallel_group(name),
    }
    for attribute, value in attributes.items():
        setattr(parameter, attribute, value)


class _CopyToRanks(torch.autograd.Function):
    """Identity forward, sum over the ranks backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: RankGroup) -> Tensor:
        ctx.tensor = tensor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return ctx.tensor.sum(gradients[0].contiguous()), None


class _SumOverRanks(torch.autograd.Function):
    """Sum over the ranks forward, identity backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, tensor: RankGroup) -> Tensor:
        ctx.mark_dirty(x)
        return tensor.sum(x)

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Any:
        return gradients[0], None


def copy_to_ranks(x: Tensor, tensor: RankGroup) -> Tensor:
    return x if tensor.size == 1 else _CopyToRanks.apply(x, tensor)  # type: ignore[no-untyped-call]


def sum_over_ranks(x: Tensor, tensor: RankGroup) -> Tensor:
    return x if tensor.size == 1 else _SumOverRanks.apply(x, tensor)  # type: ignore[no-untyped-call]


class ColumnLinear(nn.Module):
    """`y = x A + b` with the columns of A cut: each rank yields its part of y's features."""

    def __init__(
        self, plan: Plan, name: str, *, inputs: int, outputs: int, bias: bool | None = None
    ) -> None:
        super().__init__()
        build = plan.build
        self.tensor = build.tensor
        self.weight = build.cut(name, (outputs, inputs), std=STANDARD_DEVIATION, dim=0)
        with_bias = plan.bias if bias is None else bias
        self.bias = build.constant(outputs, 0.0, cut=True) if with_bias else None

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(copy_to_ranks(x, self.tensor), self.weight, self.bias)


class RowLinear(nn.Module):
    """`y = x A + b` with the rows of A cut: takes each rank's part of x's features, yields y."""

    def __init__(self, plan: Plan, name: str, *, inputs: int, outputs: int) -> None:
        super().__init__()
        build = plan.build
        self.tensor = build.tensor
        self.weight = build.cut(name, (outputs, inputs), std=plan.residual_std, dim=1)
        self.bias = build.constant(outputs, 0.0) if plan.bias else None

    def forward(self, x: Tensor) -> Tensor:
        y = sum_over_ranks(functional.linear(x, self.weight), self.tensor)
        return y if self.bias is None else y + self.bias


class Embedding(nn.Module):
    """The vocabulary cut over the ranks, used in both directions.

    For integer tokens it returns their vectors, for hidden states this rank's part of the logits.
    It is one module with one forward, since ZeRO 3 gathers a weight only around the forward of the
    module that owns it, and a tied output layer uses the same weight.
    """

    def __init__(self, plan: Plan, name: str = "embedding") -> None:
        super().__init__()
        build, shape = plan.build, (plan.transformer.vocab_size, plan.transformer.hidden_size)
        self.tensor = build.tensor
        self.first, self.last = build.tensor.share(shape[0])
        self.weight = build.cut(name, shape, std=STANDARD_DEVIATION, dim=0)

    def forward(self, x: Tensor) -> Tensor:
        if x.is_floating_point():
            return functional.linear(copy_to_ranks(x, self.tensor), self.weight)
        if self.tensor.size == 1:
            return functional.embedding(x, self.weight)
        elsewhere = (x < self.first) | (x >= self.last)
        local = (x - self.first).masked_fill(elsewhere, 0)
        vectors = functional.embedding(local, self.weight).masked_fill(elsewhere.unsqueeze(-1), 0.0)
        return sum_over_ranks(vectors, self.tensor)


class _CrossEntropy(torch.autograd.Function):
    """Mean cross entropy of logits whose vocabulary is cut over the ranks."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, first: int, tensor: RankGroup) -> Tensor:
        largest = tensor.maximum(logits.amax(dim=-1))
        exponentials = (logits - largest.unsqueeze(-1)).exp_()
        total = tensor.sum(exponentials.sum(dim=-1))
        elsewhere = (labels < first) | (labels >= first + logits.shape[-1])
        local = (labels - first).masked_fill(elsewhere, 0).unsqueeze(-1)
        chosen = logits.gather(-1, local).squeeze(-1).masked_fill(elsewhere, 0.0)
        chosen = tensor.sum(chosen)
        ctx.save_for_backward(exponentials.div_(total.unsqueeze(-1)), local, elsewhere)
        return (total.log() + largest - chosen).mean()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        probabilities, local, elsewhere = ctx.saved_tensors
        here = (~elsewhere).to(probabilities.dtype).unsqueeze(-1)
        difference = probabilities.scatter_add(-1, local, -here)
        return difference.mul_(gradients[0] / elsewhere.numel()), None, None, None


def cross_entropy(logits: Tensor, labels: Tensor, *, vocabulary: int, tensor: RankGroup) -> Tensor:
    """Return the mean over all tokens, in fp32; `logits` is this rank's part of the vocabulary."""
    if tensor.size == 1:
        return functional.cross_entropy(logits.float().flatten(0, -2), labels.flatten())
    first, _ = tensor.share(vocabulary)
    return _CrossEntropy.apply(logits.float(), labels, first, tensor)  # type: ignore


class Normalization(nn.Module):
    """LayerNorm in a model with biases, RMSNorm in any other."""

    def __init__(self, plan: Plan, size: int | None = None) -> None:
        super().__init__()
        self.size = size or plan.transformer.hidden_size
        self.weight = plan.build.constant(self.size, 1.0)
        self.bias = plan.build.constant(self.size, 0.0) if plan.bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return functional.rms_norm(x, (self.size,), self.weight, 1e-5)
        return functional.layer_norm(x, (self.size,), self.weight, self.bias, 1e-5)


class FeedForward(nn.Module):
    """Two matrices and GELU, or three and SiLU when gated (gate and value rows interleaved)."""

    def __init__(self, plan: Plan, name: str, *, width: int) -> None:
        super().__init__()
        t = plan.transformer
        self.gated = t.gated_mlp
        entered = width * (2 if t.gated_mlp else 1)
        self.enter = ColumnLinear(plan, f"{name}.enter", inputs=t.hidden_size, outputs=entered)
        self.leave = RowLinear(plan, f"{name}.leave", inputs=width, outputs=t.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(activated(self.enter(x), gated=self.gated))  # type: ignore[no-any-return]


def activated(inner: Tensor, *, gated: bool) -> Tensor:
    """Return an MLP's inner layer after its activation: GELU, or SiLU of the gate times the value.

    Args:
        inner: of shape (…, width), or (…, 2 width) where gated.
    """
    if not gated:
        return functional.gelu(inner, approximate="tanh")
    gate, value = inner.view(*inner.shape[:-1], inner.shape[-1] // 2, 2).unbind(-1)
    return functional.silu(gate) * value
