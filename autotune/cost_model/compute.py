"""Time of computation: one layer and one micro-batch, forward, unless a function says otherwise."""

from __future__ import annotations

import numpy as np

from autotune.cost_model.layouts import Array, Layouts

TILE = 128
"""Rows and columns of the tile that a GEMM is cut into."""

ALIGNMENT = 64
"""Sharded widths that are multiples of this keep the matrix units busy."""

FLASH_BACKWARD = 2.5
"""Five products in FlashAttention's backward pass against two forward (Dao 2023, section 2.3.2)."""

SCORE_BYTES = 12.0
"""Traffic for each entry of the score matrix in one pass without flash attention: scaled and
masked softmax reads and writes it, dropout again with its mask."""


def gemm_time_s(layouts: Layouts, rows: Array, columns: Array, depth: Array) -> Array:
    """`max(2MNK / (peak x efficiency), bytes / bandwidth)` of an `M x K` by `K x N` product."""
    flops = 2.0 * rows * columns * depth
    efficiency = gemm_efficiency(layouts, rows, columns, depth)
    elements = rows * columns + rows * depth + columns * depth
    streamed = elements * layouts.element_bytes / layouts.memory_bytes_per_s
    return np.maximum(flops / (layouts.peak_flops * efficiency), streamed)


def gemm_efficiency(layouts: Layouts, rows: Array, columns: Array, depth: Array) -> Array:
    """Share of the peak: less for a short inner dimension, a partial wave, a misaligned width."""
    parameters = layouts.parameters
    saturation = depth / (depth + parameters.gemm_depth)
    misaligned = (columns % ALIGNMENT != 0) | (depth % ALIGNMENT != 0)
    alignment = np.where(misaligned, parameters.misaligned_gemm, 1.0)
    waves = wave_efficiency(rows, columns, compute_units=parameters.compute_units)
    return parameters.gemm_efficiency * saturation * alignment * waves


def wave_efficiency(rows: Array, columns: Array, *, compute_units: float) -> Array:
    """Busy share of the compute units: tiles over whole waves of tiles (108 units on an A100)."""
    tiles = np.ceil(rows / TILE) * np.ceil(columns / TILE)
    waves = tiles / compute_units
    return waves / np.ceil(waves)


def linear_time_s(layouts: Layouts, *, inputs: Array, outputs: Array) -> tuple[Array, Array]:
    """Forward and backward of one linear layer, `inputs x outputs` on each rank.

    Backward is two products: the gradient of the input and that of the weight.
    """
    tokens = layouts.tokens
    forward = gemm_time_s(layouts, tokens, outputs, inputs)
    input_gradient = gemm_time_s(layouts, tokens, inputs, outputs)
    weight_gradient = gemm_time_s(layouts, inputs, outputs, tokens)
    return forward, input_gradient + weight_gradient


def matrix_time_s(layouts: Layouts) -> tuple[Array, Array]:
    """Forward and backward of a layer's four linear layers (three wide ones when gated)."""
    model, t = layouts.transformer, layouts.tensor_parallel
    hidden = np.full_like(t, model.hidden_size)
    shapes = (
        (hidden, (model.hidden_size + 2 * model.kv_size) / t),
        (hidden / t, hidden),
        (hidden, (2 if model.gated_mlp else 1) * model.ffn_hidden_size / t),
        (model.ffn_hidden_size / t, hidden),
    )
    times = np.array([linear_time_s(layouts, inputs=i, outputs=o) for i, o in shapes])
    forward, backward = times.sum(axis=0)
    return forward, backward


def attention_time_s(layouts: Layouts) -> tuple[Array, Array]:
    """Forward and backward of a layer's attention between query and value, projections apart."""
    fused, plain = flash_attention_time_s(layouts), plain_attention_time_s(layouts)
    return (
        np.where(layouts.flash, fused[0], plain[0]),
        np.where(layouts.flash, fused[1], plain[1]),
    )


def flash_attention_time_s(layouts: Layouts) -> tuple[Array, Array]:
    """A causal fused kernel: half of the `4 s^2 h b / t` operations, no score matrix in memory."""
    model, parameters = layouts.transformer, layouts.parameters
    head = parameters.misaligned_head if model.head_dim % 8 else 1.0
    pairs = layouts.tokens * model.seq_length / 2
    flops = 4.0 * pairs * model.hidden_size / layouts.tensor_parallel
    forward = flops / (layouts.peak_flops * parameters.flash_efficiency * head)
    return forward, FLASH_BACKWARD * forward


def plain_attention_time_s(layouts: Layouts) -> tuple[Array, Array]:
    """Two batched products over all `s^2` pairs and the passes of softmax and dropout over them."""
    model, parameters = layouts.transformer, layouts.parameters
    head = parameters.misaligned_head if model.head_dim % 8 else 1.0
    saturation = model.head_dim / (model.head_dim + parameters.gemm_depth)
    pairs = layouts.tokens * model.seq_length / layouts.tensor_parallel
    products = 4.0 * pairs * model.hidden_size
    rate = layouts.peak_flops * parameters.gemm_efficiency * saturation * head
    scores = SCORE_BYTES / 2 * layouts.element_bytes * pairs * model.num_attention_heads
    forward = products / rate + scores / layouts.memory_bytes_per_s
    return forward, 2.0 * forward


def elementwise_time_s(layouts: Layouts) -> tuple[Array, Array]:
    """Norms, biases, dropouts, residuals, activation function: HBM traffic, in `s b h` elements.

    Two norms read and write (4), two bias-dropout-adds read two and write one and a mask (7):
    11, cut by sequence parallelism; the query, key and value are laid out anew (6) and the
    activation function reads and writes the inner width (2 f/h, 3 f/h when gated), cut by TP.
    """
    model = layouts.transformer
    inner = (3.0 if model.gated_mlp else 2.0) * model.ffn_hidden_size / model.hidden_size
    passes = 11.0 / layouts.sequence_shards + (6.0 + inner) / layouts.tensor_parallel
    forward = passes * layouts.hidden_bytes / layouts.memory_bytes_per_s
    return forward, 2.0 * forward


def recomputation_time_s(
    layouts: Layouts, *, matrix: Array, attention: Array, elementwise: Array
) -> Array:
    """A layer's forward times again with full checkpointing, its attention's with selective."""
    return np.select(
        [layouts.full_checkpointing, layouts.selective_checkpointing],
        [matrix + attention + elementwise, attention],
        0.0,
    )


def embedding_time_s(layouts: Layouts) -> Array:
    """First stage: rows gathered, positions added, dropout; the gradient scattered back."""
    return 6.0 * layouts.hidden_bytes / layouts.memory_bytes_per_s


def logits_time_s(layouts: Layouts) -> Array:
    """Last stage, forward and backward: the `h x V/t` product and the loss over its result."""
    model = layouts.transformer
    hidden = np.full_like(layouts.tokens, model.hidden_size)
    columns = model.vocab_size / layouts.tensor_parallel
    forward, backward = linear_time_s(layouts, inputs=hidden, outputs=columns)
    # The loss reads and writes the fp32 logits about three times: maximum, exponential, gradient.
    loss = 24.0 * layouts.tokens * columns / layouts.memory_bytes_per_s
    return forward + backward + loss


def host_time_s(layouts: Layouts) -> Array:
    """Least time of one layer's forward, backward and repeated passes: launches by the host."""
    passes = np.where(layouts.full_checkpointing, 4.0, 3.0)
    return layouts.parameters.host_floor_s * passes


def optimizer_time_s(layouts: Layouts, *, parameters_of_rank: Array) -> Array:
    """`(6 + 14/d) N` bytes through the HBM; nothing is divided without ZeRO."""
    shards = np.where(layouts.zero_stage >= 1, layouts.data_parallel, 1.0)
    return (6.0 + 14.0 / shards) * parameters_of_rank / layouts.memory_bytes_per_s
