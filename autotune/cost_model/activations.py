"""Activations that layers store for the backward pass, in bytes per micro-batch, by kind of layer.

Each function counts 16-bit (or fp32) elements; `in_bytes` multiplies by their width. `T` is the
number of tokens of a micro-batch on one rank, `Ts` the same under sequence parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array, Rows, taken
from autotune.cost_model.strategies import Strategies

LOW_PRECISION = 0.5
"""Bytes of a product's input stored in 8 bits, relative to an element's."""

MASK = 0.5
"""Bytes of a dropout mask, relative to an element's."""

ROUTING_BYTES = 4.0
"""Bytes per routed token: its probability in fp32."""

ROUTER_BYTES = 9.0
"""Bytes per token and expert: the router's logits and probabilities in fp32, and a bit map."""

COMPILED_COPIES = 2.0
"""Factor on the memory of logits if a compiler fuses the loss: its kernels write each result to a
new fp32 tensor, where Megatron-LM's loss works in place."""

PREDICTION_BYTES = 4.0
"""Bytes per token and vocabulary entry of one more predicted token: the softmax of its logits in
fp32."""

SOFTMAX_SHARE = 0.4
"""Share of the softmax result in the bytes of a stored score; the rest is for dropout."""


def in_bytes(strategies: Strategies, elements: Array) -> Array:
    return strategies.parameters.activation_bytes * strategies.element_bytes * elements


def product_width(strategies: Strategies) -> Array:
    """Return the bytes per element of an input stored for the weight gradient, relative to an
    element's."""
    return np.where(strategies.narrow, LOW_PRECISION, 1.0)


def norm_elements(strategies: Strategies) -> Array:
    """Return the elements stored at the entry of a block, `Ts h (1 + n)`: the input of the norm,
    its result unless it is recomputed, and a dropout mask in GPT models."""
    recomputed = strategies.flag("recompute_layernorm")
    result = np.where(recomputed, 0.0, product_width(strategies))
    dropout = np.where(strategies.has_biases, strategies.columns["dropout"], 0.0)
    return strategies.hidden_elements * (1.0 + result + MASK * dropout)


def attention_elements(strategies: Strategies) -> Array:
    """Return the elements that attention stores, without scores: query, key, value and result, `T
    (2q + 2k) / t`.

    Multi-head latent attention also stores its compressed query and key/value and their norms,
    unsharded on every TP rank; the expanded ones may be recomputed.
    """
    t, tokens = strategies.tensor_parallel, strategies.tokens
    gated = 1.0 + strategies.columns["attention_gate"]  # the gate, and the gated result
    plain = tokens * 2.0 * (gated * strategies.query_size + strategies.kv_size) / t
    if not strategies.any_latent:
        return plain
    columns, heads = strategies.columns, strategies.columns["num_attention_heads"]
    rope, value = columns["rope_head_dim"], columns["v_head_dim"]
    key = columns["qk_head_dim"] + rope
    compressed = 2.0 * (columns["q_rank"] + columns["kv_rank"]) + rope
    expanded = compressed / strategies.sequence_shards + heads * (2.0 * key + value) / t
    expanded = np.where(strategies.flag("recompute_mla_up_proj"), 0.0, expanded)
    latent = tokens * (expanded + heads * value / t)
    return np.where(strategies.latent, latent, plain)


def mamba_elements(strategies: Strategies) -> Array:
    """Return the elements that a Mamba-2 block or linear attention stores: the input projection
    before and after the convolution, and the scan's result before and after its norm."""
    columns = strategies.columns
    width = 2.0 * columns["mamba_projected_size"] + columns["mamba_inner_size"]
    return strategies.tokens * width / strategies.tensor_parallel


def mixer_elements(strategies: Strategies) -> Array:
    """Return the elements that a layer stores outside its MLP or experts; the mean over layers of a
    hybrid."""
    norms = strategies.blocks * norm_elements(strategies)
    if not strategies.any_mamba:
        return norms + attention_elements(strategies)
    attention = strategies.attention_share * attention_elements(strategies)
    return norms + attention + strategies.mamba_share * mamba_elements(strategies)


def unfused_elements(strategies: Strategies) -> Array:
    """Return what an activation function without a fused kernel stores besides its result and the
    MLP's products, in elements for each unit of the MLP's width."""
    more = strategies.parameters.gated_activation_bytes / 2.0 - 3.0
    return np.where(strategies.gated, more, 0.0)


def mlp_elements(strategies: Strategies) -> Array:
    """Return the elements that a dense MLP stores: `2 T f / t`, or from `3 T f / t` on if gated."""
    inner = np.where(strategies.gated, 2.0, 1.0) + product_width(strategies)
    inner = inner + unfused_elements(strategies)
    stored = strategies.tokens * strategies.ffn_hidden_size * inner / strategies.tensor_parallel
    share = np.where(strategies.flag("recompute_mlp"), 0.0, strategies.mlp_share)
    return stored * share


def dense_layer(strategies: Strategies) -> Array:
    """Return the bytes that a layer with a dense MLP stores, without attention scores.

    For a GPT this is `s b h (10 + 24/t)`, all divided by t with sequence parallelism (Korthikanti
    et al. 2022, equations 2 and 4). Unfused norms store copies in fp32.
    """
    elements = mixer_elements(strategies) + mlp_elements(strategies)
    separate = strategies.gated & ~strategies.flag("fused_norm")
    if not separate.any():
        return in_bytes(strategies, elements)
    copies = np.where(separate, strategies.parameters.norm_bytes, 0.0) / 2.0
    return in_bytes(strategies, elements + copies * strategies.hidden_elements)


def expert_layer(strategies: Strategies) -> tuple[Array, Array]:
    """Return the bytes that a layer with experts stores, without scores: of all tokens, and of the
    tokens routed to this rank's experts.

    `R = Ts k` tokens reach each rank, multiplied by ETP and by the load of the fullest rank. It
    stores their hidden states, the experts' products, and the result of the activation function;
    without the latter if it is recomputed (`moe_act`), and only the layer's input if the whole
    mixture is (`moe`).
    """
    columns, width = strategies.columns, product_width(strategies)
    etp, ffn = columns["expert_tensor_parallel"], columns["expert_ffn_hidden_size"]
    gates = np.where(strategies.gated, 2.0, 1.0)
    rank_tokens = strategies.tokens / strategies.sequence_shards
    received = rank_tokens * columns["top_k"] * etp * strategies.parameters.routing_imbalance
    clamped = columns["expert_biases"] * gates  # a copy of the products' result
    unfused = unfused_elements(strategies)
    more = np.maximum(clamped, unfused)
    activated = np.where(strategies.flag("recompute_moe_act"), 0.0, width + more)
    routed = received * (
        strategies.expert_hidden_size * width
        + (gates + activated) * ffn / etp
        + ROUTING_BYTES / strategies.element_bytes
    )
    shared = columns["shared_ffn_hidden_size"] * (gates + width + unfused)
    shared = shared / strategies.tensor_parallel
    router = ROUTER_BYTES / strategies.element_bytes * columns["num_experts"]
    latent = 2.0 * columns["expert_latent_size"]  # compressed, and before it is expanded
    mixture = strategies.tokens * shared + rank_tokens * (router + latent)
    stored_share = np.where(strategies.flag("recompute_moe"), 0.0, 1.0)
    return (
        in_bytes(strategies, mixer_elements(strategies) + stored_share * mixture),
        in_bytes(strategies, stored_share * routed),
    )


def score_activations(strategies: Strategies) -> Array:
    """Return the bytes of one layer's score matrix, `5 a s^2 b / t`, 3 of the 5 for dropout; 0 with
    flash attention, which never stores it."""
    if strategies.flash.all():
        return np.zeros(())
    parameters = strategies.parameters
    heads = strategies.columns["num_attention_heads"]
    pairs = strategies.tokens * strategies.seq_length * heads / strategies.tensor_parallel
    unfused = strategies.flag("unfused_softmax")
    bytes_each = np.where(unfused, parameters.unfused_score_bytes, parameters.score_bytes)
    without_dropout = np.where(strategies.flag("dropout"), 1.0, SOFTMAX_SHARE)
    scores = bytes_each * without_dropout * strategies.element_bytes / 2.0 * pairs
    return np.where(strategies.flash, 0.0, scores)


def stored_products(strategies: Strategies) -> Array:
    """Return the bytes of a layer's input, its attention's result, and every second matrix product:
    half of query, key, value, attention projection, and the MLP's two or three, in units of `2 s b
    h`."""
    h = strategies.hidden_size
    inner = np.where(strategies.gated, 2.0, 1.0) * strategies.ffn_hidden_size / h
    query = strategies.query_size / h
    split = query + 0.5 * (query + 2.0 * strategies.kv_size / h + inner)
    whole = 1.0 + 0.5 * 2.0
    stored = whole / strategies.sequence_shards + split / strategies.tensor_parallel
    return strategies.parameters.activation_bytes * strategies.hidden_bytes * stored


def logits_memory(strategies: Strategies) -> Array:
    """Return the bytes of the last stage's logits, divided by TP, as Megatron's loss is parallel
    over the vocabulary. Each depth of multi-token prediction also stores its softmax."""
    chunk = float(strategies.parameters.loss_tokens)
    tokens = np.minimum(strategies.tokens, chunk) if chunk else strategies.tokens
    entries = tokens * strategies.padded_vocabulary
    copies = np.where(strategies.flag("compiled_loss"), COMPILED_COPIES, 1.0)
    predictions = PREDICTION_BYTES * strategies.columns["mtp_layers"]
    return (strategies.parameters.logits_bytes * copies + predictions) * entries


def waiting_gradients(strategies: Strategies) -> Array:
    """Return the bytes of a recomputed dense MLP's gradients for the tokens whose turn is later, if
    it takes one part of the sequence after the other. Its recomputed results are whole."""
    at_once = np.minimum(strategies.parameters.mlp_tokens / strategies.tokens, 1.0)
    gradients = strategies.parameters.recomputed_layer - 1.0
    return gradients * (1.0 - at_once) * in_bytes(strategies, mlp_elements(strategies))


@dataclass(frozen=True)
class ActivationBytes:
    """Bytes of one micro-batch: what a layer stores for the backward pass, without recomputed
    parts, and temporary memory.

    Attributes:
        dense: a layer with a dense MLP.
        expert, routed: a layer with experts: for all tokens, and for the tokens routed to them;
            None for models without experts.
        passing: temporary memory while a layer is recomputed, for the layer that needs most.
        logits: of the last stage, freed before the first layer's backward pass.
    """

    dense: Array
    expert: Array | None
    routed: Array | None
    passing: Array
    logits: Array

    @classmethod
    def of(cls, strategies: Strategies) -> ActivationBytes:
        """Compute the bytes. Full checkpointing stores a layer's input, `2 s b h` (sharded by
        sequence parallelism); selective everything except the scores; by operation half of its
        products."""
        everything = strategies.without_recomputation()
        scores = score_activations(strategies)
        stored = np.where(strategies.selective_checkpointing, 0.0, scores)
        full = strategies.full_checkpointing
        inputs = strategies.element_bytes * strategies.hidden_elements
        inputs = inputs * (1.0 - strategies.parameters.offloaded_inputs)
        linear = dense_layer(strategies)
        whole = scores + (linear if everything is strategies else dense_layer(everything))
        dense = linear + stored
        if strategies.operation_checkpointing.any():
            products = stored_products(strategies)
            dense = np.where(strategies.operation_checkpointing, products, dense)
        live, repeated = strategies.parameters.recomputed_layer, strategies.recomputed_share
        passing = live * np.maximum(whole - np.where(full, inputs, dense), 0.0)
        if strategies.parameters.mlp_tokens:
            passing = passing - np.where(full, waiting_gradients(strategies), 0.0)
        expert = routed = None
        if strategies.any_experts:
            common, routed = expert_layer(strategies)
            whole = scores + np.add(*expert_layer(everything))
            expert = common + stored
            of_experts = live * np.maximum(whole - np.where(full, inputs, expert + routed), 0.0)
            passing = np.where(strategies.has_experts, of_experts, passing)
            expert = repeated * inputs + (1.0 - repeated) * expert
            routed = (1.0 - repeated) * routed
        return cls(
            dense=repeated * inputs + (1.0 - repeated) * dense,
            expert=expert,
            routed=routed,
            passing=passing,
            logits=logits_memory(strategies),
        )

    def take(self, rows: Rows) -> ActivationBytes:
        """Return the micro-batches at the indices `rows`."""
        return ActivationBytes(
            dense=taken(self.dense, rows),
            expert=None if self.expert is None else taken(self.expert, rows),
            routed=None if self.routed is None else taken(self.routed, rows),
            passing=taken(self.passing, rows),
            logits=taken(self.logits, rows),
        )
