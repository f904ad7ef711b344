"""Time of layers with a mixture of experts, latent, sparse or linear attention or Mamba-2, in
seconds per micro-batch, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.cost_model import compute, states
from autotune.cost_model.columns import Array, Mask
from autotune.cost_model.communication import all_to_all_time_s
from autotune.cost_model.strategies import Strategies

ROUTER_BYTES = 32.0
"""Bytes of memory traffic per token and expert: logits, softmax, the top k and their map, in
fp32."""

PADDED = 64.0
"""Each expert's tokens are padded to a multiple of this, to align its products."""

BIAS_PASSES = (6.0, 8.0)
CLAMP_PASSES = (8.0, 10.0)
"""Reads and writes, forward and backward, that experts with biases add: of each routed token's
hidden state, whose bias is scaled by the router's probability, and of its inner width, whose two
halves are clamped. No kernel fuses them (Megatron Core d98e8a6, `TEGroupedMLP._apply_bias` and
`weighted_bias_quick_geglu_impl`)."""

SCAN_PASSES = 12.0
"""Reads and writes of the inner width around convolution, scan and gate, including states in
fp32."""

ALIGNED = 64.0
"""Columns of a matrix, of which fast products take whole multiples."""

SCAN_RATE = 0.12
"""Rate of the scan's small products (chunks of 128 to 256 tokens), relative to large matrix
products."""

Pass = tuple[Array, Array]
"""Seconds forward and backward."""


@dataclass(frozen=True)
class LayerTimes:
    """Time of one block of a layer.

    Attributes:
        matrix, attention, experts, elementwise, all_to_all: seconds of its parts, forward and
            backward.
        repeated: forward seconds repeated for recomputed modules.
    """

    matrix: Pass
    attention: Pass
    experts: Pass
    elementwise: Pass
    all_to_all: Pass
    repeated: Array

    @property
    def forward(self) -> Array:
        """Seconds of a whole forward pass."""
        parts = (self.matrix, self.attention, self.experts, self.elementwise, self.all_to_all)
        return _sum(part[0] for part in parts)


NOTHING: Pass = (np.zeros(()), np.zeros(()))


def _block(
    *,
    matrix: Pass = NOTHING,
    attention: Pass = NOTHING,
    experts: Pass = NOTHING,
    elementwise: Pass = NOTHING,
    all_to_all: Pass = NOTHING,
    repeated: Array = NOTHING[0],
) -> LayerTimes:
    return LayerTimes(matrix, attention, experts, elementwise, all_to_all, repeated)


def _sum(times: object) -> Array:
    return np.asarray(sum(times))  # type: ignore[call-overload]


def attention_block(strategies: Strategies) -> LayerTimes:
    """Return the time of attention with its projections and norm."""
    sizes = compute.attention_layers(strategies)
    tokens = strategies.tokens
    matrix = compute.linear_time_s(strategies, sizes)
    cast = compute.cast_time_s(strategies, sizes, tokens)
    expanded = np.zeros(())
    if strategies.any_latent:
        down, up = _latent_layers(strategies)
        whole = compute.linear_time_s(strategies, down, tokens=strategies.rank_tokens)
        cut = compute.linear_time_s(strategies, up)
        latent = strategies.latent
        matrix = _where(latent, _plus(whole, cut), matrix)
        moved = compute.cast_time_s(strategies, down, strategies.rank_tokens)
        moved = moved + compute.cast_time_s(strategies, up, tokens)
        cast = np.where(latent, moved, cast)
        # The output projection, which is last, is not repeated.
        again = compute.linear_time_s(strategies, up[:-1])[0]
        expanded = np.where(latent & strategies.flag("recompute_mla_up_proj"), again, 0.0)
    passes = compute.LAYOUT_PASSES * strategies.score_width / strategies.hidden_size
    passes = passes / strategies.tensor_parallel
    core = compute.attention_time_s(strategies)
    if strategies.have("index_layers"):
        core = _plus(core, _indexer_time_s(strategies))
    selective = np.where(strategies.selective_checkpointing, core[0], 0.0)
    norm = _norm(strategies)
    streamed = compute.streamed_time_s(strategies, passes) + norm
    return _block(
        matrix=matrix,
        attention=core,
        elementwise=(streamed + cast, 2.0 * streamed + cast),
        repeated=expanded + selective + _repeated_norm(strategies, norm),
    )


def _latent_layers(
    strategies: Strategies,
) -> tuple[list[tuple[Array, Array]], list[tuple[Array, Array]]]:
    columns, h, t = strategies.columns, strategies.hidden_size, strategies.tensor_parallel
    heads, rope = columns["num_attention_heads"], columns["rope_head_dim"]
    query, rank = columns["q_rank"], np.maximum(columns["kv_rank"], 1.0)
    inputs = np.where(query > 0, query, h)
    down = [(h, query + rank + rope)]
    up = [
        (inputs, heads * np.maximum(columns["qk_head_dim"] + rope, 1.0) / t),
        (rank, heads * np.maximum(columns["qk_head_dim"] + columns["v_head_dim"], 1.0) / t),
        (heads * np.maximum(columns["v_head_dim"], 1.0) / t, h),
    ]
    return down, up


def _indexer_time_s(strategies: Strategies) -> Pass:
    """Return seconds of an indexer's projections and of its scores over all causal pairs, mean over
    layers; each rank of TP computes all of them."""
    columns, tokens = strategies.columns, strategies.tokens
    pairs = tokens * strategies.seq_length * columns["index_heads"] * columns["index_head_dim"]
    flops = pairs + 2.0 * tokens * states.indexer_parameters(strategies)
    share = columns["index_layers"] / strategies.num_layers
    forward = share * flops / strategies.wide_gemm_flops
    return forward, 2.0 * forward


def dense_block(strategies: Strategies) -> LayerTimes:
    """Return the time of a dense MLP with its norm."""
    width = strategies.ffn_hidden_size / strategies.tensor_parallel
    return _mlp_block(strategies, width, repeated="recompute_mlp")


def _mlp_block(strategies: Strategies, width: Array, *, repeated: str) -> LayerTimes:
    sizes = compute.mlp_layers(strategies, np.maximum(width, 1.0))
    cast = compute.cast_time_s(strategies, sizes, strategies.tokens)
    passes = compute.activation_passes(strategies, width)
    norm = _norm(strategies)
    streamed = compute.streamed_time_s(strategies, passes) + norm
    matrix = compute.linear_time_s(strategies, sizes)
    again = np.where(strategies.flag(repeated), matrix[0] + streamed + cast, 0.0)
    return _block(
        matrix=matrix,
        elementwise=(streamed + cast, 2.0 * streamed + cast),
        repeated=again + _repeated_norm(strategies, norm),
    )


def _norm(strategies: Strategies) -> Array:
    return compute.streamed_time_s(strategies, compute.norm_passes(strategies) / 2.0)


def _repeated_norm(strategies: Strategies, norm: Array) -> Array:
    return np.where(strategies.flag("recompute_layernorm"), norm, 0.0)


def expert_block(strategies: Strategies) -> LayerTimes:
    """Return the time of a mixture of experts with its norm: router, dispatch and combine, one
    grouped kernel for all experts of a rank, and the shared experts.

    Each rank receives `R = Ts k` routed tokens, times ETP, shared by its `E / EP` experts. The
    efficiency of the products falls with the tokens per expert, `R EP / E`. It is computed for an
    even load, whatever the load of the slowest rank, because tokens are padded to whole tiles and
    the time would jump with the load.
    """
    columns, parameters = strategies.columns, strategies.parameters
    h = strategies.expert_hidden_size
    etp, ffn = columns["expert_tensor_parallel"], columns["expert_ffn_hidden_size"]
    even = strategies.routed_tokens * etp
    routed = even * strategies.expert_load
    experts = np.maximum(columns["num_experts"] / columns["expert_parallel"], 1.0)
    width = np.maximum(ffn / etp, 1.0)
    sizes = compute.mlp_layers(strategies, width, h)
    each = np.maximum(np.ceil(even / (experts * PADDED)), 1.0) * PADDED
    grouped = compute.linear_time_s(
        strategies,
        sizes,
        tokens=each,
        groups=experts,
        flops=strategies.gemm_flops * parameters.grouped_gemm,
    )
    router = ROUTER_BYTES * strategies.rank_tokens * columns["num_experts"]
    # An all-to-all sorts what it received, and back; others permute once each way.
    sorted_again = columns["waits_for_counts"] * parameters.waits_for_counts
    passes = 0.5 * (1.0 + sorted_again) * parameters.permutation_passes
    permuted = passes * strategies.routed_tokens * h
    apart = 1.0 - strategies.fused_experts
    activated = apart * np.where(strategies.gated, 3.0, 2.0) * routed * width
    streamed = strategies.element_bytes / strategies.memory_bytes_per_s
    around = router / strategies.memory_bytes_per_s + (permuted + activated) * streamed
    biased = columns["expert_biases"] * routed * streamed
    clamped = [passes * biased * width for passes in CLAMP_PASSES]
    shifted = [passes * biased * h for passes in BIAS_PASSES]
    inner = np.where(strategies.gated, 3.0, 2.0) * width
    cast = compute.cast_time_s(strategies, [(h, h), (apart * inner, np.zeros(()))], routed)
    activation = activated * streamed + clamped[0]
    sent = all_to_all_time_s(strategies)
    shared_width = columns["shared_ffn_hidden_size"] / strategies.tensor_parallel
    shared = _mlp_block(strategies, shared_width, repeated="recompute_moe")
    has = shared_width > 0
    matrix = _where(has, shared.matrix, NOTHING)
    if strategies.have("expert_latent_size"):
        to_and_from = [(strategies.hidden_size, h), (h, strategies.hidden_size)]
        latent = compute.linear_time_s(strategies, to_and_from, tokens=strategies.rank_tokens)
        latent = _where(strategies.flag("expert_latent_size"), latent, NOTHING)
        matrix = _plus(matrix, latent)
    norm = _norm(strategies)
    elementwise = _where(has, shared.elementwise, (norm, 2.0 * norm))
    forward, backward = (time * strategies.expert_load for time in grouped)
    products = (
        forward + around + clamped[0] + shifted[0] + cast,
        backward + 1.5 * around + clamped[1] + shifted[1] + cast,
    )
    whole = matrix[0] + elementwise[0] - norm + products[0] + sent
    again = np.where(strategies.flag("recompute_moe_act"), activation, 0.0)
    again = np.where(strategies.flag("recompute_moe"), whole, again)
    return _block(
        matrix=matrix,
        experts=products,
        elementwise=elementwise,
        all_to_all=(sent, sent),
        repeated=again + _repeated_norm(strategies, norm),
    )


def mamba_block(strategies: Strategies) -> LayerTimes:
    """Return the time of a Mamba-2 block or of linear attention: its projections, its scan, which
    is linear in the sequence length, and its norm."""
    columns, t = strategies.columns, strategies.tensor_parallel
    inner = np.maximum(columns["mamba_inner_size"], 1.0) / t
    # Gates of a few columns are products of their own, and do not misalign the others.
    projected = np.ceil(np.maximum(columns["mamba_projected_size"], 1.0) / ALIGNED) * ALIGNED
    sizes = [
        (strategies.hidden_size, projected / t),
        (inner, strategies.hidden_size),
    ]
    matrix = compute.linear_time_s(strategies, sizes)
    cast = compute.cast_time_s(strategies, sizes, strategies.tokens)
    flops = strategies.tokens * columns["mamba_scan_flops"] / t
    scan = flops / (strategies.wide_gemm_flops * SCAN_RATE)
    norm = _norm(strategies)
    streamed = compute.streamed_time_s(strategies, SCAN_PASSES * inner / strategies.hidden_size)
    streamed = streamed + norm
    return _block(
        matrix=matrix,
        attention=(scan, 2.5 * scan),
        elementwise=(streamed + cast, 2.0 * streamed + cast),
        repeated=_repeated_norm(strategies, norm),
    )


def mean_block(strategies: Strategies) -> LayerTimes:
    """Return the mean over layers: each kind of block weighted by its share."""
    blocks: list[tuple[Array, LayerTimes]] = [
        (strategies.attention_share, attention_block(strategies)),
        (strategies.dense_share, dense_block(strategies)),
    ]
    if strategies.any_experts:
        blocks.append((strategies.expert_share, expert_block(strategies)))
    if strategies.any_mamba:
        blocks.append((strategies.mamba_share, mamba_block(strategies)))
    return LayerTimes(
        matrix=_mean(blocks, [block.matrix for _, block in blocks]),
        attention=_mean(blocks, [block.attention for _, block in blocks]),
        experts=_mean(blocks, [block.experts for _, block in blocks]),
        elementwise=_mean(blocks, [block.elementwise for _, block in blocks]),
        all_to_all=_mean(blocks, [block.all_to_all for _, block in blocks]),
        repeated=_sum(share * block.repeated for share, block in blocks),
    )


def _mean(blocks: Sequence[tuple[Array, LayerTimes]], parts: Sequence[Pass]) -> Pass:
    shares = [share for share, _ in blocks]
    forward, backward = (
        _sum(share * part[way] for share, part in zip(shares, parts, strict=True)) for way in (0, 1)
    )
    return forward, backward


def _plus(one: Pass, other: Pass) -> Pass:
    return one[0] + other[0], one[1] + other[1]


def _where(condition: Mask, chosen: Pass, other: Pass) -> Pass:
    return np.where(condition, chosen[0], other[0]), np.where(condition, chosen[1], other[1])
