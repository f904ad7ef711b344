"""Time of computation, for one layer and one micro-batch, forward, unless a function says
otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from autotune.cost_model.columns import Array, Mask
from autotune.cost_model.communication import Copies
from autotune.cost_model.parameters import Constant
from autotune.cost_model.strategies import Strategies

TILES = ((256.0, 128.0, 1.0), (128.0, 128.0, 0.96), (64.0, 64.0, 0.75))
"""Rows, columns and relative rate of GEMM tiles; two of the small ones share a compute unit."""

SMALL_TILE = 8192.0
"""Minimum elements of a tile that occupies a compute unit of its own."""

FLASH_BACKWARD = 2.5
"""FlashAttention's backward pass has five products, its forward pass two (Dao 2023, section
2.3.2)."""

FLASH_DEPTH = 32.0
"""Head dimension at which a flash kernel reaches half of its rate; the rate is quoted for 128."""


def gemm_time_s(
    strategies: Strategies,
    rows: Array,
    columns: Array,
    depth: Array,
    *,
    groups: float | Array = 1.0,
    flops: Constant | None = None,
) -> Array:
    """Return seconds of `groups` products of `M x K` by `K x N` in one kernel: `max(2MNK / (peak x
    efficiency), bytes / bandwidth)` in total.

    The sizes may have leading axes, for products that are computed together.

    Args:
        flops: FLOP/s that large products reach; that of the strategies' precision by default.
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
    """Return the efficiency: lower for a short inner dimension, a partial wave, or an unaligned
    width."""
    units = strategies.parameters.compute_units
    saturation = depth / (depth + strategies.parameters.gemm_depth * strategies.elements_at_once)
    waves = wave_efficiency(rows, columns, compute_units=units, groups=groups)
    return saturation * waves * alignment(strategies, rows, columns, depth)


def alignment(strategies: Strategies, *widths: Array) -> Array:
    """Return 1 if all widths are multiples of 64, less if one is not, and least if one is not a
    multiple of 8."""
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
    """Return the share of the compute units' time that produces results, for the best of TILES.

    Edge tiles are computed whole, and the last wave of tiles occupies all units (108 on an A100) as
    long as a full one.
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
    """Return seconds, forward and backward, of several linear layers.

    The backward pass has two products: the gradients of the input and of the weight.

    Args:
        layers: inputs and outputs of each on one rank.
        tokens: per group; those of the micro-batch by default.
        groups, flops: as in `gemm_time_s`.
    """
    # All products at once: for few strategies, the number of NumPy calls dominates.
    tokens = strategies.tokens if tokens is None else tokens
    shapes = (np.shape(size) for layer in layers for size in layer)
    sizes = np.empty((3, len(layers), 1, *np.broadcast_shapes((1,), tokens.shape, *shapes)))
    # The third axis is over sets of constants.
    for place, layer in enumerate(layers):
        sizes[0, place], (sizes[1, place], sizes[2, place]) = tokens, layer
    rows, columns, depth = sizes[[0, 0, 1]], sizes[[2, 1, 2]], sizes[[1, 2, 0]]
    forward, input_gradient, weight_gradient = gemm_time_s(
        strategies, rows, columns, depth, groups=groups, flops=flops
    )
    return _summed(forward), _summed(input_gradient + weight_gradient)


def _summed(times: Array) -> Array:
    whole = np.asarray(np.add.reduce(times))
    return np.asarray(whole[0]) if len(whole) == 1 else whole


def attention_layers(strategies: Strategies) -> list[tuple[Array, Array]]:
    """Return inputs and outputs on one rank of the fused query, key, value and gate projection, and
    of the output projection."""
    h, t, q = strategies.hidden_size, strategies.tensor_parallel, strategies.query_size
    gated = 1.0 + strategies.columns["attention_gate"]
    return [(h, (gated * q + 2.0 * strategies.kv_size) / t), (q / t, h)]


def mlp_layers(
    strategies: Strategies, width: Array, hidden: Array | None = None
) -> list[tuple[Array, Array]]:
    """Return inputs and outputs on one rank of an MLP's layers (three if gated, two of them in one
    product), for its part of the inner `width` and, for experts, the width of their tokens."""
    h = strategies.hidden_size if hidden is None else hidden
    return [(h, np.where(strategies.gated, 2.0, 1.0) * width), (width, h)]


def matrix_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds, forward and backward, of the four linear layers of a layer with grouped-query
    attention and a dense MLP."""
    width = strategies.ffn_hidden_size / strategies.tensor_parallel
    return linear_time_s(
        strategies, [*attention_layers(strategies), *mlp_layers(strategies, width)]
    )


def attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds, forward and backward, of a layer's attention without projections."""
    fused = flash_attention_time_s(strategies)
    if strategies.flash.all():
        return fused
    plain = plain_attention_time_s(strategies)
    return (
        np.where(strategies.flash, fused[0], plain[0]),
        np.where(strategies.flash, fused[1], plain[1]),
    )


def score_pairs(strategies: Strategies) -> Array:
    """Return `s^2 b / t`, the pairs of tokens that one rank scores per head of width 1."""
    return strategies.tokens * strategies.seq_length / strategies.tensor_parallel


def _head_rate(strategies: Strategies) -> Array:
    misaligned = np.mod(strategies.head_width, 8) != 0
    return np.where(misaligned, strategies.parameters.misaligned_head, 1.0)


def flash_attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of a causal fused kernel: half of the `4 s^2 h b / t` operations, without a
    score matrix in memory."""
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
"""Tokens per tile of a flash kernel; a window is rounded up to whole tiles."""


def reached_share(strategies: Strategies) -> Array:
    """Return the share of the causal pairs that a layer attends to, mean over layers: with a window
    of `w` tokens `2w/s`."""
    layers, window = strategies.columns["window_layers"], strategies.columns["attention_window"]
    if not strategies.have("window_layers"):
        return np.ones(())
    reached = np.minimum(2.0 * (window + WINDOW_TILE) / strategies.seq_length, 1.0)
    windowed = layers / strategies.num_layers
    return 1.0 - windowed * (1.0 - reached)


def plain_attention_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of two batched products over all `s^2` pairs, and of softmax and dropout over
    them."""
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
    """Return the memory traffic of a layer's norms, biases, dropouts and residuals, in units of `s
    b h` elements.

    Two norms read and write (4), and two bias-dropout-adds read two and write one and a mask (7):
    11. A gated model has neither biases nor dropouts: 7 if norms and residuals are fused. If not,
    each norm takes 18: to fp32 (3), square (4), mean (2), scale (4), back to 16 bits (3), weight
    (2); with two sums (6) that is 42. Sequence parallelism divides all of them.
    """
    gated = np.where(strategies.flag("fused_norm"), 7.0, 42.0)
    return np.where(strategies.gated, gated, 11.0) / strategies.sequence_shards


def activation_passes(strategies: Strategies, width: Array) -> Array:
    """Return the memory traffic of an MLP's activation function of inner `width`, in the same
    units: one read and one write, or two reads and one write if gated."""
    return np.where(strategies.gated, 3.0, 2.0) * width / strategies.hidden_size


LAYOUT_PASSES = 6.0
"""Elements moved per element of the query to rearrange query, key and value."""


def streamed_time_s(strategies: Strategies, passes: Array) -> Array:
    """Return seconds of streaming this many times `s b h` elements through HBM."""
    return passes * strategies.hidden_bytes / strategies.memory_bytes_per_s


def elementwise_time_s(strategies: Strategies) -> tuple[Array, Array]:
    """Return seconds of norms, biases, dropouts, residuals and the activation function of a layer
    with a dense MLP, which are bound by HBM traffic."""
    inner = activation_passes(strategies, strategies.ffn_hidden_size)
    cut = (LAYOUT_PASSES + inner) / strategies.tensor_parallel
    forward = streamed_time_s(strategies, norm_passes(strategies) + cut)
    return forward, 2.0 * forward


def cast_time_s(
    strategies: Strategies, layers: Sequence[tuple[Array, Array]], tokens: Array
) -> Array:
    """Return seconds, forward and backward, of casting the inputs of linear layers and the
    gradients of their outputs to low precision: read, reduced to a maximum, written as is and
    transposed.

    Args:
        layers: as in `linear_time_s`, for `tokens` in total.
    """
    sizes = reduce(np.add, (np.add(inputs, outputs) for inputs, outputs in layers))
    moved = strategies.parameters.cast_bytes * tokens * sizes / strategies.memory_bytes_per_s
    return np.where(strategies.narrow, moved, 0.0)


def recomputation_time_s(
    strategies: Strategies, *, matrix: Array, attention: Array, elementwise: Array
) -> Array:
    """Return the forward seconds that checkpointing repeats: a whole layer (full), its attention
    (selective), or every second product and the operations between them (by operation)."""
    whole = matrix + attention + elementwise
    partly = np.where(strategies.selective_checkpointing, attention, 0.0)
    between = np.where(strategies.operation_checkpointing, 0.5 * matrix + elementwise, partly)
    return np.where(strategies.full_checkpointing, strategies.recomputed_share * whole, between)


def embedding_time_s(strategies: Strategies) -> Array:
    """Return seconds of the first stage: row gather, position add, dropout, and the scatter of the
    gradient."""
    return 6.0 * strategies.hidden_bytes / strategies.memory_bytes_per_s


LOSS_BYTES = 40.0
"""Bytes of memory traffic per token and vocabulary entry of the loss, as Megatron-LM computes it
with its fused functions (fused_cross_entropy.py): cast to fp32 (6), maximum (4), exponentials (8),
softmax (8), its gradient (8), cast to 16 bits (6)."""


def logits_time_s(strategies: Strategies) -> Array:
    """Return seconds of the last stage, forward and backward: the `h x V/t` product and the
    loss."""
    columns = strategies.padded_vocabulary
    forward, backward = linear_time_s(
        strategies, [(strategies.hidden_size, columns)], flops=strategies.wide_gemm_flops
    )
    loss = LOSS_BYTES * strategies.tokens * columns / strategies.memory_bytes_per_s
    return forward + backward + loss


def host_time_s(strategies: Strategies) -> Array:
    """Return the minimum time of one layer's forward, backward and recomputation passes, limited by
    kernel launches on the host, and with ZeRO 3 by its hooks."""
    passes = 3.0 + strategies.recomputed_share
    constants = strategies.parameters
    more = np.where(strategies.tensor_parallel > 1, constants.tensor_parallel_host, 0.0)
    gathers = np.where(strategies.zero_stage == 3, constants.sharded_weights_host_s, 0.0)
    return constants.host_floor_s * passes * (1.0 + more) + gathers


def expert_loop_time_s(strategies: Strategies) -> Array:
    """Return the host's seconds for the experts of one layer that run as modules of their own, in
    all passes."""
    constants = strategies.parameters
    passes = 3.0 + strategies.recomputed_share
    matrices = np.where(strategies.gated, 3.0, 2.0)
    sharded = (strategies.zero_stage == 3) & (strategies.columns["expert_parallel"] == 1)
    gathers = np.where(sharded, constants.expert_module_s * matrices, 0.0)
    experts = strategies.columns["num_experts"] / strategies.columns["expert_parallel"]
    each = passes * (constants.expert_loop * constants.expert_launch_s + gathers)
    return experts * strategies.expert_share * each


def waiting_time_s(strategies: Strategies, *, busy: Array, host: Array) -> Array:
    """Return seconds for one layer and micro-batch that the GPU is idle because the host waits for
    the counts of routed tokens: in a forward pass, original or repeated, neither runs ahead of the
    other, and the shorter of their times adds to the longer.

    An all-to-all dispatcher needs the counts for the sizes of what it sends and receives
    (Megatron-LM's token_dispatcher.py synchronizes before it). HybridEP needs no synchronization
    (its README). DeepEP's host waits, too, but for a message that precedes the tokens; that this
    wait is hidden is an assumption.

    Args:
        busy, host: seconds of the GPU and the host for the layer's passes, of which one in three is
            forward, or two in four.
    """
    forward = (1.0 + strategies.recomputed_share) / (3.0 + strategies.recomputed_share)
    waits = strategies.columns["waits_for_counts"] * strategies.parameters.waits_for_counts
    waits = waits * strategies.expert_share
    return waits * forward * np.minimum(busy, host)


def optimizer_time_s(strategies: Strategies, copies: Copies) -> Array:
    """Return seconds of `(6 + 14/d) N` bytes of HBM traffic; d is 1 without ZeRO."""
    shards = np.where(strategies.zero_stage >= 1, copies.shards, 1.0)
    rate = strategies.memory_bytes_per_s * strategies.parameters.optimizer_efficiency
    return (6.0 + 14.0 / shards) * copies.parameters / rate
