"""Causal self-attention: with grouped queries or latent keys and values, over all tokens or a
window of them. Sequences may be cut over context-parallel ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from evaluators.trainer.layers import (
    STANDARD_DEVIATION,
    ColumnLinear,
    Normalization,
    Plan,
    RankGroup,
    RowLinear,
    copy_to_ranks,
    exchange,
)
from search_spaces.layers import LatentAttention

ROTARY_BASE = 10_000.0

Queries = tuple[Tensor, Tensor, Tensor]
"""Queries, keys and values, each of shape (samples, heads, length, width)."""


class GroupedProjection(nn.Module):
    """Queries, keys and values of grouped-query attention.

    The rows of the fused projection are ordered group by group: its queries, its key, its value.
    """

    def __init__(self, plan: Plan, name: str) -> None:
        super().__init__()
        t = plan.transformer
        self.head_dim, self.rotary = t.head_width, not t.has_biases
        self.width = t.num_attention_heads // t.num_query_groups + 2
        rows = t.query_size + 2 * t.kv_size
        self.project = ColumnLinear(plan, f"{name}.project", inputs=t.hidden_size, outputs=rows)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).view(*x.shape[:2], -1, self.width * self.head_dim)  # type: ignore

    def split(self, groups: Tensor) -> Queries:
        groups = groups.view(*groups.shape[:3], self.width, self.head_dim)
        q = groups[..., :-2, :].flatten(2, 3).transpose(1, 2)
        k, v = groups[..., -2, :].transpose(1, 2), groups[..., -1, :].transpose(1, 2)
        return (rotated(q), rotated(k), v) if self.rotary else (q, k, v)


class LatentProjection(nn.Module):
    """Queries, keys and values of latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Every tensor-parallel rank has the whole compressing projections and its heads' part of the
    expanding ones.
    """

    def __init__(self, plan: Plan, shape: LatentAttention, name: str) -> None:
        super().__init__()
        t, build, self.shape, self.tensor = plan.transformer, plan.build, shape, plan.build.tensor
        self.query_width = shape.qk_head_dim + shape.rope_head_dim
        self.compress_queries, self.query_norm = None, None
        if shape.q_rank is not None:
            down = (shape.q_rank, t.hidden_size)
            self.compress_queries = build.whole(f"{name}.q down", down, std=STANDARD_DEVIATION)
            self.query_norm = Normalization(plan, shape.q_rank)
        self.queries = ColumnLinear(
            plan,
            f"{name}.q",
            inputs=shape.q_rank or t.hidden_size,
            outputs=t.num_attention_heads * self.query_width,
            bias=False,
        )
        self.compressed = [shape.kv_rank, shape.rope_head_dim]
        down = (sum(self.compressed), t.hidden_size)
        self.compress = build.whole(f"{name}.kv down", down, std=STANDARD_DEVIATION)
        self.norm = Normalization(plan, shape.kv_rank)
        rows = t.num_attention_heads * (shape.qk_head_dim + shape.v_head_dim)
        self.expand = ColumnLinear(
            plan, f"{name}.kv", inputs=shape.kv_rank, outputs=rows, bias=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return this rank's heads, of shape (samples, length, heads, width)."""
        latent = x
        if self.compress_queries is not None and self.query_norm is not None:
            latent = self.query_norm(functional.linear(x, self.compress_queries))
        queries = self.queries(latent).view(*x.shape[:2], -1, self.query_width)
        compressed = functional.linear(x, self.compress)
        latent, rope = torch.split(compressed, self.compressed, dim=-1)
        expanded = self.expand(self.norm(latent)).view(*queries.shape[:3], -1)
        # All heads share the rotary part of the keys.
        shared = copy_to_ranks(rope, self.tensor).unsqueeze(2).expand(-1, -1, queries.shape[2], -1)
        return torch.cat([queries, shared, expanded], dim=-1)

    def split(self, heads: Tensor) -> Queries:
        shape = self.shape
        rope, width = shape.rope_head_dim, shape.qk_head_dim
        parts = [width, rope, rope, width, shape.v_head_dim]
        q, q_rope, k_rope, k, v = torch.split(heads.transpose(1, 2), parts, dim=-1)
        q = torch.cat([q, rotated(q_rope)], dim=-1)
        return q, torch.cat([k, rotated(k_rope)], dim=-1), v


class Attention(nn.Module):
    """Causal self-attention with the heads cut over the ranks, query groups kept together."""

    def __init__(self, plan: Plan, name: str, *, window: int | None) -> None:
        super().__init__()
        t, latent = plan.transformer, plan.transformer.latent_attention
        self.context, self.window = plan.context, window
        self.flash = plan.strategy.flash_attention
        self.recompute = plan.strategy.activation_checkpointing == "selective"
        self.heads = (
            GroupedProjection(plan, name)
            if latent is None
            else LatentProjection(plan, latent, name)
        )
        mixed = t.num_attention_heads * (latent.v_head_dim if latent else t.head_width)
        self.output = RowLinear(plan, f"{name}.output", inputs=mixed, outputs=t.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads.split(whole_sequence(self.heads(x), self.context))
        mixed = recomputed(self._mix, q, k, v) if self.recompute else self._mix(q, k, v)
        part = part_of_sequence(mixed.transpose(1, 2), self.context)
        return self.output(part.flatten(2))  # type: ignore[no-any-return]

    def _mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mix = fused_attention if self.flash else explicit_attention
        return mix(q, k, v, window=self.window)


def fused_attention(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    """Return attention by torch's own kernel, which keeps no score matrix."""
    attention, grouped = functional.scaled_dot_product_attention, q.shape[1] != k.shape[1]
    if window is None:
        return attention(q, k, v, is_causal=True, enable_gqa=grouped)
    visible = ~hidden(q.shape[-2], window=window, device=q.device)
    return attention(q, k, v, attn_mask=visible, enable_gqa=grouped)


def explicit_attention(q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None) -> Tensor:
    """Return attention through scores of shape (samples, heads, length, length)."""
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    masked = hidden(q.shape[-2], window=window, device=q.device)
    return scores.masked_fill(masked, float("-inf")).softmax(dim=-1) @ v


def hidden(length: int, *, window: int | None, device: torch.device) -> Tensor:
    """Return a mask of shape (length, length) of the tokens that each does not attend to: later
    ones, and those before the last `window`."""
    every = torch.ones(length, length, dtype=torch.bool, device=device)
    ahead = every.triu(1)
    return ahead if window is None else ahead | every.tril(-window)


def rotated(x: Tensor) -> Tensor:
    """Return x, of shape (samples, heads, length, head_dim), rotated (Su et al. 2021, eq. 34)."""
    half = x.shape[-1] // 2
    rates = ROTARY_BASE ** (-torch.arange(half, device=x.device, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[-2], device=x.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    result: Tensor = checkpoint(function, *inputs, use_reentrant=True, preserve_rng_state=False)
    return result


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
