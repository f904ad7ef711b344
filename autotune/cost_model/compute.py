"""Time of computation: one layer and one micro-batch, forward, unless a function says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.cost_model.columns import Array, Mask
from autotune.cost_model.communication import Copies
from autotune.cost_model.parameters import Constant
from autotune.cost_model.strategies import Strategies

TILES = ((256.0, 128.0, 1.0), (128.0, 128.0, 0.96), (64.0, 64.0, 0.75))
"""Rows, columns and relative rate of the tiles that a GEMM may be cut into; two of the small ones
share a compute unit."""

SMALL_TILE = 8192.0
"""Elements of a tile from which on it has a compute unit of its own."""

FLASH_BACKWARD = 2.5
"""Five products in FlashAttention's backward pass against two forward (Dao 2023, section 2.3.2)."""

FLASH_DEPTH = 32.0
"""Head dimension at which a flash kernel reaches half of its rate; 128 is what it is quoted for."""


def gemm_time_s(
    strategies: Strategies,
    rows: Array,
    columns: Array,
    depth: Array,
    *,
    groups: float | Array = 1.0,
    flops: Constant | None = None,
) -> Array:
    """Return the time of `groups` products of `M x K` by `K x N` in one kernel: `max(2MNK / (peak x
    efficiency), bytes / bandwidth)` of all.

    The sizes may have more axes in front, of products that are worked out together.

    Args:
        flops: operations a second that large products reach; those of the strategies' precision
            where not given.
    """
    products = groups * rows * columns * depth
    best = strategies.gemm_flops if flops is None else flops
    rate = best * gemm_efficiency(strategies, rows, columns, depth, groups=groups)
    elements = groups * (rows * columns + rows * depth + columns * depth)
    streamed = elements * strategies.element_bytes / strategies.memory_bytes_per_s
    return np.maximum(2.0 * products / rate, streamed)


def gemm_efficiency(
    strategies: Strategies,
    rows: Array,
    columns: Array,
    depth: Array,
    *,
    groups: float | Array = 1.0,
) -> Array:
    """Return the share of the best rate: less for a short inner dimension, a partial wave, an odd
    width."""
    units = strategies.parameters.compute_units
    saturation = depth / (depth + strategies.parameters.gemm_depth * strategies.elements_at_once)
    waves = wave_efficiency(rows, columns, compute_units=units, groups=groups)
    return saturation * waves * alignment(strategies, rows, columns, depth)


def alignment(strategies: Strategies, *widths: Array) -> Array:
    """Return 1 where all widths are multiples of 64, less where one is not, least where not of
    8."""
    parameters = strategies.parameters
    misaligned, odd = _no_multiple(64, widths), _no_multiple(8, widths)
    rate = np.where(misaligned, parameters.misaligned_gemm, 1.0)
    return np.where(odd, parameters.odd_gemm, rate)


def _no_multiple(of: int, widths: tuple[Array, ...]) -> Mask:
    return reduce(np.logical_or, (np.mod(width, of) != 0 for width in widths))


def wave_efficiency(
    rows: Array,
    columns: Array,
    *,
    compute_units: float | Array,
    groups: float | Array = 1.0,
) -> Array:
    """Return the share of the compute units' time that goes into results, for the best of TILES.

    Tiles at the edge are computed whole, and the last wave of tiles holds all units (108 on an
    A100) for as long as the others.
    """
    best = np.zeros(())
    for height, width, rate in TILES:
        units = compute_units if height * width > SMALL_TILE else 2.0 * compute_units
        tiles = np.ceil(rows / height) * np.ceil(columns / width)
        used = rows * columns / (tiles * (height * width))
        waves = groups * tiles / units
        best = np.maximum(best, rate * used * waves / np.ceil(waves))
    return best


def linear_time_s(
    strategies: Strategies,
    layers: Sequence[tuple[Array, Array]],
    *,
    tokens: Array | None = None,
    groups: float | Array = 1.0,
    flops: Constant | None = None,
) -> tuple[Array, Array]:
    """Return seconds, forward and backward, of linear layers together.

    Backward is two products: the gradient of the input and that of the weight.

    Args:
        layers: inputs and outputs of each on one rank.
        tokens: of each group; those of the micro-batch where not given.
        groups, flops: as in `gemm_time_s`.
    """
    # All products at once: of few strategies, their number alone is what costs.
    tokens = strategies.tokens if tokens is None else tokens
    shapes = (np.shape(size) for layer in layers for size in layer)
    sizes = np.empty((3, len(layers), 1, *np.broadcast_shapes((1,), tokens.shape, *shapes)))
    # The third axis is that of sets of constants.
    for place, layer in enumerate(layers):
        sizes[0, place], (sizes[1, place], sizes[2, place]) = tokens, layer
    rows, columns, depth = sizes[[0, 0, 1]], sizes[[2, 1, 2]], sizes[[1, 2, 0]]
    forward, input_gradient, weight_gradient = gemm_time_s(
        strategies, rows, columns, depth, groups=groups, flops=flops
    )
    return _summed(forward), _summed(input_gradient + weight_gradient)


def _summed(times: Array) -> Array:
    """Return the sum of layers, shape (k, n), or (n,) where there is one set of constants."""
    whole = np.asarray(np.add.reduce(times))
    return np.asarray(whole[0]) if len(whole) == 1 else whole


def attention_layers(strategies: Strategies) -> list[tuple[Array, Array]]:
    """Return inputs and outputs on one rank of query, key and value together, and of the result's
    projection."""
    h, t, q = strategies.hidden_size, strategies.tensor_parallel, strategies.query_size
    return [(h, (q + 2.0 * strategies.kv_size) / t), (q / t, h)]


def mlp_layers(strategies: Strategies, width: Array) -> list[tuple[Array, Array]]:
    """Return inputs and outputs on one rank of an MLP's layers (three of them, two in one product,
    when gated), of which the rank has so much of the inner `width`."""
    h = strategies.hidden_size
    return [(h, np.where(strategies.gated, 2.0, 1.0) * width), (width, h)]


def matrix_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds, forward and backward, of the four linear layers of a layer with grouped-query
    attention and a dense MLP."""
    width = strategies.ffn_hidden_size / strategies.tensor_parallel
    return linear_time_s(
        strategies, [*attention_layers(strategies), *mlp_layers(strategies, width)]
    )


def attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds, forward and backward, of a layer's attention between query and value,
    projections apart."""
    fused = flash_attention_time_s(strategies)
    if strategies.flash.all():
        return fused
    plain = plain_attention_time_s(strategies)
    return (
        np.where(strategies.flash, fused[0], plain[0]),
        np.where(strategies.flash, fused[1], plain[1]),
    )


def score_pairs(strategies: Strategies) -> Array:
    """Return `s^2 b / t`: the pairs of tokens that one rank scores for one head of width 1."""
    return strategies.tokens * strategies.seq_length / strategies.tensor_parallel


def _head_rate(strategies: Strategies) -> Array:
    """Return the rate of a head's kernels, which pad one that is no multiple of 8."""
    misaligned = np.mod(strategies.head_width, 8) != 0
    return np.where(misaligned, strategies.parameters.misaligned_head, 1.0)


def flash_attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of a causal fused kernel: half of the `4 s^2 h b / t` operations, no score
    matrix in memory."""
    parameters = strategies.parameters
    flash_1 = strategies.flag("flash_1")
    kernel = np.where(flash_1, parameters.flash_1_efficiency, parameters.flash_efficiency)
    saturation = (
        strategies.head_width / (strategies.head_width + FLASH_DEPTH) * (1.0 + FLASH_DEPTH / 128.0)
    )
    flops = 2.0 * score_pairs(strategies) * strategies.score_width * reached_share(strategies)
    forward = flops / (strategies.peak_flops * kernel * saturation * _head_rate(strategies))
    return forward, FLASH_BACKWARD * forward


WINDOW_TILE = 128.0
"""Tokens of a tile of a flash kernel: a window is rounded up to whole ones."""


def reached_share(strategies: Strategies) -> Array:
    """Return the share of the causal half's pairs that a layer reaches, mean over layers: with a
    window of `w` tokens, `2w/s` of them."""
    layers, window = strategies.columns["window_layers"], strategies.columns["attention_window"]
    if not strategies.have("window_layers"):
        return np.ones(())
    reached = np.minimum(2.0 * (window + WINDOW_TILE) / strategies.seq_length, 1.0)
    windowed = layers / strategies.num_layers
    return 1.0 - windowed * (1.0 - reached)


def plain_attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of two batched products over all `s^2` pairs and the passes of softmax and
    dropout over them."""
    parameters, head = strategies.parameters, strategies.head_width
    pairs = score_pairs(strategies)
    rate = strategies.peak_flops * parameters.gemm_efficiency * _head_rate(strategies)
    products = 4.0 * pairs * strategies.score_width / (rate * head / (head + parameters.gemm_depth))
    unfused = strategies.flag("unfused_softmax")
    traffic = np.where(unfused, parameters.unfused_score_traffic, parameters.score_traffic)
    scores = pairs * strategies.columns["num_attention_heads"] * strategies.element_bytes / 2.0
    forward = products + traffic * scores / strategies.memory_bytes_per_s
    return forward, 2.0 * forward


def norm_passes(strategies: Strategies) -> Array:
    """Return the elements of `s b h` that norms, biases, dropouts and residuals of a layer move.

    Two norms read and write (4), two bias-dropout-adds read two and write one and a mask (7): 11.
    A gated model has neither biases nor dropouts: 7 where norms and residuals are one kernel. Where
    they are operation after operation, each norm takes 18: to fp32 (3), square (4), mean (2),
    scaled (4), back to 16 bits (3), weighted (2); with two sums (6) that is 42. All of these are
    cut by sequence parallelism.
    """
    gated = np.where(strategies.flag("fused_norm"), 7.0, 42.0)
    return np.where(strategies.gated, gated, 11.0) / strategies.sequence_shards


def activation_passes(strategies: Strategies, width: Array) -> Array:
    """Return the elements of `s b h` that an MLP's activation function moves, of an inner `width`:
    it reads one and writes one, or reads two and writes one when gated."""
    return np.where(strategies.gated, 3.0, 2.0) * width / strategies.hidden_size


LAYOUT_PASSES = 6.0
"""Elements of the query's width that are moved to lay query, key and value out anew."""


def streamed_time_s(strategies: Strategies, passes: Array) -> Array:
    """Return seconds of so many elements of `s b h` through HBM."""
    return passes * strategies.hidden_bytes / strategies.memory_bytes_per_s


def elementwise_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of norms, biases, dropouts, residuals and the activation function of a layer
    with a dense MLP: HBM traffic."""
    inner = activation_passes(strategies, strategies.ffn_hidden_size)
    cut = (LAYOUT_PASSES + inner) / strategies.tensor_parallel
    forward = streamed_time_s(strategies, norm_passes(strategies) + cut)
    return forward, 2.0 * forward


def cast_time_s(
    strategies: Strategies, layers: Sequence[tuple[Array, Array]], tokens: Array
) -> Array:
    """Return seconds, forward and backward, of making narrow the inputs of linear layers, and the
    gradients of their outputs: read, its largest value found, written as it is and transposed.

    Args:
        layers: as in `linear_time_s`, for `tokens` in all.
    """
    sizes = reduce(np.add, (np.add(inputs, outputs) for inputs, outputs in layers))
    moved = strategies.parameters.cast_bytes * tokens * sizes / strategies.memory_bytes_per_s
    return np.where(strategies.narrow, moved, 0.0)


def recomputation_time_s(
    strategies: Strategies, *, matrix: Array, attention: Array, elementwise: Array
) -> Array:
    """Return a layer's forward seconds again with full checkpointing, its attention's with
    selective; by operation every second product and what lies between them."""
    whole = matrix + attention + elementwise
    partly = np.where(strategies.selective_checkpointing, attention, 0.0)
    between = np.where(strategies.operation_checkpointing, 0.5 * matrix + elementwise, partly)
    return np.where(strategies.full_checkpointing, whole, between)


def embedding_time_s(strategies: Strategies) -> Array:
    """Return seconds of the first stage: rows gathered, positions added, dropout; the gradient
    scattered back."""
    return 6.0 * strategies.hidden_bytes / strategies.memory_bytes_per_s


def logits_time_s(strategies: Strategies) -> Array:
    """Return seconds of the last stage, forward and backward: the `h x V/t` product and the loss
    over its result."""
    columns = strategies.padded_vocabulary
    forward, backward = linear_time_s(
        strategies, [(strategies.hidden_size, columns)], flops=strategies.wide_gemm_flops
    )
    # The loss reads and writes the fp32 logits about three times: maximum, exponential, gradient.
    loss = 24.0 * strategies.tokens * columns / strategies.memory_bytes_per_s
    return forward + backward + loss


def host_time_s(strategies: Strategies) -> Array:
    """Return the least time of one layer's forward, backward and repeated passes: launches by the
    host."""
    passes = np.where(strategies.full_checkpointing, 4.0, 3.0)
    more = np.where(strategies.tensor_parallel > 1, strategies.parameters.tensor_parallel_host, 0.0)
    return strategies.parameters.host_floor_s * passes * (1.0 + more)


def optimizer_time_s(strategies: Strategies, copies: Copies) -> Array:
    """Return the time of `(6 + 14/d) N` bytes of HBM traffic; nothing is divided without ZeRO."""
    shards = np.where(strategies.zero_stage >= 1, copies.shards, 1.0)
    rate = strategies.memory_bytes_per_s * strategies.parameters.optimizer_efficiency
    return (6.0 + 14.0 / shards) * copies.parameters / rate
