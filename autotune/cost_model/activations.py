"""What layers keep of one micro-batch for the backward pass, in bytes, by kind of layer.

Each function counts elements of 16 bits (or of fp32); `in_bytes` gives them their width. `T` are a
micro-batch's tokens on one rank, `Ts` those that sequence parallelism leaves to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array, Rows, taken
from autotune.cost_model.strategies import Strategies

LOW_PRECISION = 0.5
"""Of an element's width, what a product's input takes when it is kept in 8 bits."""

MASK = 0.5
"""Of an element's width, what a dropout's mask takes."""

ROUTING_BYTES = 4.0
"""Of one routed token: its probability in fp32."""

ROUTER_BYTES = 9.0
"""Of one token and expert: the router's logits and probabilities in fp32, and a map of bits."""

COMPILED_COPIES = 2.0
"""Times as much for logits where a compiler fuses the loss: its kernels write each step's result
beside the one before, in fp32, where Megatron-LM's own loss overwrites it."""

PREDICTION_BYTES = 4.0
"""For each token and vocabulary entry of one more predicted token: its logits' softmax in fp32."""

SOFTMAX_SHARE = 0.4
"""Of a stored score's bytes, those of the softmax's result; the rest is its dropout's."""


def in_bytes(strategies: Strategies, elements: Array) -> Array:
    return strategies.parameters.activation_bytes * strategies.element_bytes * elements


def product_width(strategies: Strategies) -> Array:
    """Return the bytes of an input stored for the weight gradient, relative to an element's."""
    return np.where(strategies.narrow, LOW_PRECISION, 1.0)


def norm_elements(strategies: Strategies) -> Array:
    """Return what a block of a layer keeps at its entry, `Ts h (1 + n)`: the norm's input, and its
    result unless that is recomputed; a dropout's mask, where a GPT has one."""
    recomputed = strategies.flag("recompute_layernorm")
    result = np.where(recomputed, 0.0, product_width(strategies))
    dropout = np.where(strategies.has_biases, strategies.columns["dropout"], 0.0)
    return strategies.hidden_elements * (1.0 + result + MASK * dropout)


def attention_elements(strategies: Strategies) -> Array:
    """Return what attention keeps, scores apart: query, key, value and result, `T (2q + 2k) / t`.

    Multi-head latent attention keeps its compressed query and key/value and their norms, too, which
    are whole on every rank of TP; what it expands from them may be recomputed.
    """
    t, tokens = strategies.tensor_parallel, strategies.tokens
    plain = tokens * 2.0 * (strategies.query_size + strategies.kv_size) / t
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
    """Return what a Mamba-2 block keeps: the input projection's result before and after the
    convolution, and the scan's result before and after its norm."""
    columns = strategies.columns
    kept = 2.0 * columns["mamba_projected_size"] + columns["mamba_inner_size"]
    return strategies.tokens * kept / strategies.tensor_parallel


def mixer_elements(strategies: Strategies) -> Array:
    """Return what a layer keeps but for its MLP or experts; in a hybrid the mean of its layers."""
    norms = strategies.blocks * norm_elements(strategies)
    if not strategies.any_mamba:
        return norms + attention_elements(strategies)
    attention = strategies.attention_share * attention_elements(strategies)
    return norms + attention + strategies.mamba_share * mamba_elements(strategies)


def mlp_elements(strategies: Strategies) -> Array:
    """Return what a dense MLP keeps: its inner states, `2 T f / t`, or `3 T f / t` when gated."""
    inner = np.where(strategies.gated, 2.0, 1.0) + product_width(strategies)
    kept = strategies.tokens * strategies.ffn_hidden_size * inner / strategies.tensor_parallel
    share = np.where(strategies.flag("recompute_mlp"), 0.0, strategies.mlp_share)
    return kept * share


def dense_layer(strategies: Strategies) -> Array:
    """Return the bytes that a layer with a dense MLP keeps, attention scores apart.

    For a GPT this is `s b h (10 + 24/t)`, all divided by t with sequence parallelism (Korthikanti
    et al. 2022, equations 2 and 4). Norms that are no single kernel keep copies in fp32.
    """
    elements = mixer_elements(strategies) + mlp_elements(strategies)
    separate = strategies.gated & ~strategies.flag("fused_norm")
    if not separate.any():
        return in_bytes(strategies, elements)
    copies = np.where(separate, strategies.parameters.norm_bytes, 0.0) / 2.0
    return in_bytes(strategies, elements + copies * strategies.hidden_elements)


def expert_layer(strategies: Strategies) -> tuple[Array, Array]:
    """Return the bytes that a layer with experts keeps, scores apart: of all tokens, and of those
    that were routed to this rank's experts.

    `R = Ts k` tokens reach each rank, as many times more as experts are cut by ETP, and as the
    fullest rank gets more than its share. It keeps their hidden states, the experts' products, and
    the result of the activation function; without the latter where that is recomputed (`moe_act`),
    and nothing but the layer's input where the mixture is (`moe`).
    """
    columns, width = strategies.columns, product_width(strategies)
    etp, ffn = columns["expert_tensor_parallel"], columns["expert_ffn_hidden_size"]
    gates = np.where(strategies.gated, 2.0, 1.0)
    rank_tokens = strategies.tokens / strategies.sequence_shards
    received = rank_tokens * columns["top_k"] * etp * strategies.parameters.routing_imbalance
    activated = np.where(strategies.flag("recompute_moe_act"), 0.0, width)
    routed = received * (
        strategies.hidden_size * width
        + (gates + activated) * ffn / etp
        + ROUTING_BYTES / strategies.element_bytes
    )
    shared = columns["shared_ffn_hidden_size"] * (gates + width) / strategies.tensor_parallel
    router = ROUTER_BYTES / strategies.element_bytes * columns["num_experts"]
    mixture = strategies.tokens * shared + rank_tokens * router
    kept = np.where(strategies.flag("recompute_moe"), 0.0, 1.0)
    return (
        in_bytes(strategies, mixer_elements(strategies) + kept * mixture),
        in_bytes(strategies, kept * routed),
    )


def score_activations(strategies: Strategies) -> Array:
    """Return bytes of one layer's score matrix where it is stored at all, `5 a s^2 b / t`, of which
    dropout has 3: flash attention never writes it."""
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


def kept_products(strategies: Strategies) -> Array:
    """Return bytes of a layer's input, its attention's result, and every second of its products: in
    `2 s b h` half of query, key, value, attention projection, and the MLP's two or three."""
    h = strategies.hidden_size
    inner = np.where(strategies.gated, 2.0, 1.0) * strategies.ffn_hidden_size / h
    query = strategies.query_size / h
    split = query + 0.5 * (query + 2.0 * strategies.kv_size / h + inner)
    whole = 1.0 + 0.5 * 2.0
    kept = whole / strategies.sequence_shards + split / strategies.tensor_parallel
    return strategies.parameters.activation_bytes * strategies.hidden_bytes * kept


def logits_memory(strategies: Strategies) -> Array:
    """Return bytes of the last stage's logits, cut by TP: Megatron's loss is parallel over the
    vocabulary. Each depth of multi-token prediction keeps its softmax beside them."""
    entries = strategies.tokens * strategies.padded_vocabulary
    copies = np.where(strategies.flag("compiled_loss"), COMPILED_COPIES, 1.0)
    predictions = PREDICTION_BYTES * strategies.columns["mtp_layers"]
    return (strategies.parameters.logits_bytes * copies + predictions) * entries


@dataclass(frozen=True)
class KeptBytes:
    """Bytes of one micro-batch: what a layer keeps for the backward pass, with what is recomputed
    left out, and what lives for a moment.

    Attributes:
        dense: a layer with a dense MLP.
        expert, routed: a layer with experts: of all tokens, and of those that its experts got; None
            for models without.
        passing: what lives only while a layer is recomputed, of the layer where that is most.
        logits: of the last stage; they are gone when the first layer is differentiated.
    """

    dense: Array
    expert: Array | None
    routed: Array | None
    passing: Array
    logits: Array

    @classmethod
    def of(cls, strategies: Strategies) -> KeptBytes:
        """Full checkpointing keeps a layer's input, `2 s b h` (cut by sequence parallelism);
        selective all but the scores; by operation its products."""
        everything = strategies.without_recomputation()
        scores = score_activations(strategies)
        stored = np.where(strategies.selective_checkpointing, 0.0, scores)
        full = strategies.full_checkpointing
        inputs = strategies.element_bytes * strategies.hidden_elements
        linear = dense_layer(strategies)
        whole = scores + (linear if everything is strategies else dense_layer(everything))
        dense = linear + stored
        if strategies.have("operation_checkpointing"):
            products = kept_products(strategies)
            dense = np.where(strategies.operation_checkpointing, products, dense)
        dense = np.where(full, inputs, dense)
        lost = np.maximum(whole - dense, 0.0)
        expert = routed = None
        if strategies.any_experts:
            common, routed = expert_layer(strategies)
            whole = scores + np.add(*expert_layer(everything))
            expert = np.where(full, inputs, common + stored)
            routed = np.where(full, 0.0, routed)
            of_experts = np.maximum(whole - expert - routed, 0.0)
            lost = np.where(strategies.has_experts, of_experts, lost)
        return cls(
            dense=dense,
            expert=expert,
            routed=routed,
            passing=strategies.parameters.recomputed_layer * lost,
            logits=logits_memory(strategies),
        )

    def take(self, rows: Rows) -> KeptBytes:
        """Return the micro-batches that `rows` point at, one for each."""
        return KeptBytes(
            dense=taken(self.dense, rows),
            expert=None if self.expert is None else taken(self.expert, rows),
            routed=None if self.routed is None else taken(self.routed, rows),
            passing=taken(self.passing, rows),
            logits=taken(self.logits, rows),
        )
