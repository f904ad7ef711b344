"""The decoder-only transformer that trials train: like GPT-3, or like Llama when gated."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from evaluators.trainer.context_parallel import part_of_sequence, whole_sequence
from evaluators.trainer.rank_group import RankGroup
from evaluators.trainer.tensor_parallel import (
    Build,
    ColumnLinear,
    RowLinear,
    VocabularyEmbedding,
    cross_entropy,
)
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

STANDARD_DEVIATION = 0.02
ROTARY_BASE = 10_000.0


@dataclass(frozen=True)
class Plan:
    """What every layer needs to know: the model's shape, its layout, and how weights are made."""

    transformer: Transformer
    strategy: Strategy
    build: Build
    context: RankGroup

    @property
    def residual_std(self) -> float:
        """The deviation of projections that write to the residual stream (GPT-2, section 2.3)."""
        return STANDARD_DEVIATION / math.sqrt(2 * self.transformer.num_layers)

    @property
    def bias(self) -> bool:
        return not self.transformer.gated_mlp


class Normalization(nn.Module):
    """LayerNorm, or RMSNorm in a gated model."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.size = plan.transformer.hidden_size
        self.weight = plan.build.constant(self.size, 1.0)
        self.bias = plan.build.constant(self.size, 0.0) if plan.bias else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return functional.rms_norm(x, (self.size,), self.weight, 1e-5)
        return functional.layer_norm(x, (self.size,), self.weight, self.bias, 1e-5)


class Positions(nn.Module):
    """Learned positions, added to the embedded tokens."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        shape = (plan.transformer.seq_length, plan.transformer.hidden_size)
        self.weight = plan.build.whole("positions", shape, std=STANDARD_DEVIATION)
        self.first, self.last = plan.context.share(plan.transformer.seq_length)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight[self.first : self.last]


class Attention(nn.Module):
    """Causal self-attention with the heads cut over the ranks, query groups kept together.

    The rows of the fused projection are ordered group by group: its queries, its key, its value.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__()
        t = plan.transformer
        self.head_dim = t.head_width
        self.queries_per_group = t.num_attention_heads // t.num_query_groups
        self.rotary = t.gated_mlp
        self.flash = plan.strategy.flash_attention
        self.context = plan.context
        self.recompute = plan.strategy.activation_checkpointing == "selective"
        self.project = ColumnLinear(
            plan.build,
            f"{name}.project",
            inputs=t.hidden_size,
            outputs=t.query_size + 2 * t.kv_size,
            bias=plan.bias,
            std=STANDARD_DEVIATION,
        )
        self.output = RowLinear(
            plan.build,
            f"{name}.output",
            inputs=t.query_size,
            outputs=t.hidden_size,
            bias=plan.bias,
            std=plan.residual_std,
        )

    def forward(self, x: Tensor) -> Tensor:
        samples, length, _ = x.shape
        width = self.queries_per_group + 2
        groups = self.project(x).view(samples, length, -1, width * self.head_dim)
        groups = whole_sequence(groups, self.context)
        projected = groups.view(*groups.shape[:3], width, self.head_dim)
        q = projected[..., :-2, :].flatten(2, 3).transpose(1, 2)
        k, v = projected[..., -2, :].transpose(1, 2), projected[..., -1, :].transpose(1, 2)
        if self.rotary:
            q, k = rotated(q), rotated(k)
        mix = fused_attention if self.flash else explicit_attention
        mixed = _recomputed(mix, q, k, v) if self.recompute else mix(q, k, v)
        part = part_of_sequence(mixed.transpose(1, 2), self.context)
        return self.output(part.flatten(2))  # type: ignore[no-any-return]


def fused_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention by torch's own kernel, which keeps no score matrix."""
    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=grouped)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return attention through scores of shape (samples, heads, length, length)."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(ahead, float("-inf")).softmax(dim=-1) @ v


def rotated(x: Tensor) -> Tensor:
    """Return x, of shape (samples, heads, length, head_dim), rotated (Su et al. 2021, eq. 34)."""
    half = x.shape[-1] // 2
    rates = ROTARY_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class FeedForward(nn.Module):
    """Two matrices and GELU, or three and SiLU when gated (gate and value rows interleaved)."""

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__()
        t = plan.transformer
        self.gated = t.gated_mlp
        self.enter = ColumnLinear(
            plan.build,
            f"{name}.enter",
            inputs=t.hidden_size,
            outputs=t.ffn_hidden_size * (2 if t.gated_mlp else 1),
            bias=plan.bias,
            std=STANDARD_DEVIATION,
        )
        self.leave = RowLinear(
            plan.build,
            f"{name}.leave",
            inputs=t.ffn_hidden_size,
            outputs=t.hidden_size,
            bias=plan.bias,
            std=plan.residual_std,
        )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.enter(x)
        if not self.gated:
            return self.leave(functional.gelu(inner, approximate="tanh"))  # type: ignore[no-any-return]
        gate, value = inner.unflatten(-1, (-1, 2)).unbind(-1)
        return self.leave(functional.silu(gate) * value)  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: attention and MLP, each after a norm and added to the residual stream."""

    def __init__(self, plan: Plan, index: int) -> None:
        super().__init__()
        self.recompute = plan.strategy.activation_checkpointing == "full"
        self.attention_norm = Normalization(plan)
        self.attention = Attention(plan, f"layer {index}.attention")
        self.mlp_norm = Normalization(plan)
        self.mlp = FeedForward(plan, f"layer {index}.mlp")

    def forward(self, x: Tensor) -> Tensor:
        return _recomputed(self._layer, x) if self.recompute else self._layer(x)

    def _layer(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


def _recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """Run now and again in the backward pass; reentrant, which ZeRO 3's gathering hooks need."""
    result: Tensor = checkpoint(function, *inputs, use_reentrant=True, preserve_rng_state=False)
    return result


class Embedding(VocabularyEmbedding):
    """The vocabulary of a plan: its tokens' vectors and, where tied, its logits."""

    def __init__(self, plan: Plan, name: str = "embedding") -> None:
        t = plan.transformer
        super().__init__(plan.build, name, vocabulary=t.vocab_size, hidden=t.hidden_size)


Layer = tuple[type[nn.Module], tuple[Any, ...]]


def middle_layers(plan: Plan) -> Sequence[Layer]:
    """Return all between the embedding and the logits, as (class, arguments), in order."""
    positions: list[Layer] = [] if plan.transformer.gated_mlp else [(Positions, (plan,))]
    blocks: list[Layer] = [(Block, (plan, i)) for i in range(plan.transformer.num_layers)]
    return [*positions, *blocks, (Normalization, (plan,))]


def loss_of(plan: Plan) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the mean loss of a rank's part of the logits against labels (samples, length)."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        vocabulary = plan.transformer.vocab_size
        return cross_entropy(logits, labels, vocabulary=vocabulary, tensor=plan.build.tensor)

    return loss


class WholeModel(nn.Module):
    """The model of a layout without a pipeline: tokens and labels in, mean loss out."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.embedding = Embedding(plan)
        self.middle = nn.ModuleList([kind(*inputs) for kind, inputs in middle_layers(plan)])
        self.logits = None if plan.transformer.tied_embeddings else Embedding(plan, "logits")
        self.loss = loss_of(plan)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.middle:
            x = layer(x)
        return self.loss((self.logits or self.embedding)(x), labels)
