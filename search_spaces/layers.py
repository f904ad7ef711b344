"""What layers of a transformer may have beside the attention and the dense MLP of GPT and Llama."""

from __future__ import annotations

from dataclasses import dataclass

MAMBA_SCAN, DELTA_SCAN = 7.0, 8.0
"""Operations of a scan for a token, a channel and a state: of Mamba-2, and of a gated delta rule
with its four products (Megatron-LM d98e8a64, `num_floating_point_operations`)."""


@dataclass(frozen=True, kw_only=True)
class Experts:
    """A mixture of experts in place of the dense MLP.

    Attributes:
        num_experts: routed experts of a layer.
        top_k: routed experts that one token passes.
        ffn_hidden_size: width of one expert's inner layer, of each of its two halves when gated.
        shared_ffn_hidden_size: width of all shared experts of a layer together, which every token
            passes.
        dense_layers: layers that keep the dense MLP: the first ones.
        interleaved: whether the dense layers lie evenly among the others instead (Llama 4
            Maverick).
        latent_size: width that tokens are compressed to on their way to routed experts, which are
            as wide (Nemotron 3 Super); None: they are not.
        biases: whether the experts' products add a bias and their activation is clamped (GPT-OSS,
            arXiv 2508.10925). The biases themselves are not counted.
    """

    num_experts: int
    top_k: int
    ffn_hidden_size: int
    shared_ffn_hidden_size: int = 0
    dense_layers: int = 0
    interleaved: bool = False
    latent_size: int | None = None
    biases: bool = False


@dataclass(frozen=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1).

    Attributes:
        kv_rank: width that keys and values are compressed to.
        q_rank: width that queries are compressed to; None: they are not.
        qk_head_dim: width of a head's query and key, without the rotary part.
        rope_head_dim: width of the rotary part, whose key all heads share.
        v_head_dim: width of a head's value.
    """

    kv_rank: int
    q_rank: int | None = None
    qk_head_dim: int
    rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True, kw_only=True)
class SparseAttention:
    """Latent attention to the tokens that an indexer selects (DeepSeek-V3.2, arXiv 2512.02556,
    section 2.1).

    Attributes:
        top_k: tokens that a query attends to.
        index_heads, index_head_dim: heads of the indexer, which scores all tokens, and their width.
        index_layers: layers with an indexer; the others take the selection of one before them.
    """

    top_k: int
    index_heads: int
    index_head_dim: int
    index_layers: int


@dataclass(frozen=True, kw_only=True)
class Mamba:
    """Mamba-2 layers of a hybrid.

    Attributes:
        layers: layers with a Mamba-2 block.
        attention_layers: layers with attention.
        num_heads, head_dim: heads and their width.
        state_size: width of a head's state.
        num_groups: groups of heads that share the projections into and out of the state.
        conv_kernel: tokens that the convolution covers.
        single_blocks: whether a layer has one block: Mamba-2, attention or an MLP (Nemotron-H,
            arXiv 2504.03624). Otherwise an MLP or experts follow in each layer (Granite 4), and a
            layer may have Mamba-2 and attention side by side (Falcon-H1).
    """

    layers: int
    attention_layers: int
    num_heads: int
    head_dim: int
    state_size: int
    num_groups: int
    conv_kernel: int = 4
    single_blocks: bool = True

    @property
    def inner_size(self) -> int:
        """Width of the block over all heads."""
        return self.num_heads * self.head_dim

    @property
    def conv_size(self) -> int:
        """Channels of the convolution."""
        return self.inner_size + 2 * self.num_groups * self.state_size

    @property
    def projected_size(self) -> int:
        """Width of the input projection's result."""
        return self.inner_size + self.conv_size + self.num_heads

    @property
    def gate_parameters(self) -> int:
        """Weights of gates that are no part of the input projection."""
        return 0

    @property
    def vector_parameters(self) -> int:
        return (self.conv_kernel + 1) * self.conv_size + self.inner_size + 3 * self.num_heads

    @property
    def scan_flops(self) -> float:
        """Operations of the scan for one token."""
        return MAMBA_SCAN * self.inner_size * self.state_size


@dataclass(frozen=True, kw_only=True)
class LinearAttention:
    """Layers whose attention is a gated delta rule, linear in the sequence length (Gated DeltaNet,
    arXiv 2412.06464; Kimi Linear, arXiv 2510.26692).

    Attributes:
        layers: layers with it; all others have attention.
        key_heads, value_heads: heads of queries and keys, and of values.
        key_head_dim, value_head_dim: width of such heads.
        conv_kernel: tokens that the convolution covers.
        gate_rank: width that the gates of decay and output are compressed to (Kimi Linear); None:
            the output gate is projected like a value, and a head has one decay (Qwen3-Next).
    """

    layers: int
    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int = 4
    gate_rank: int | None = None

    single_blocks = False

    @property
    def inner_size(self) -> int:
        """Width of the values over all heads."""
        return self.value_heads * self.value_head_dim

    @property
    def conv_size(self) -> int:
        """Channels of the convolution."""
        return 2 * self.key_heads * self.key_head_dim + self.inner_size

    @property
    def projected_size(self) -> int:
        """Width of the input projections' results: queries, keys, values, and gates."""
        if self.gate_rank is None:
            return self.conv_size + self.inner_size + 2 * self.value_heads
        return self.conv_size + 2 * self.gate_rank + self.value_heads

    @property
    def gate_parameters(self) -> int:
        """Weights of gates that are no part of the input projections."""
        return 2 * (self.gate_rank or 0) * self.inner_size

    @property
    def vector_parameters(self) -> int:
        return self.conv_kernel * self.conv_size + self.value_head_dim + 2 * self.value_heads

    @property
    def scan_flops(self) -> float:
        """Operations of the delta rule for one token."""
        return DELTA_SCAN * self.inner_size * self.key_head_dim
