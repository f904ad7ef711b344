"""What a transformer's layers may have in addition to GPT's and Llama's attention and dense MLP."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic.dataclasses import dataclass

from search_spaces.fields import CHECKED, Plausible, Switch

LAYERS, WIDTH, HEADS = 10_000, 10_000_000, 100_000
"""Largest numbers of layers, columns of a matrix, and heads (or experts) that are plausible."""

Layers = Annotated[int, Plausible(maximum=LAYERS)]
LayersOrNone = Annotated[int, Plausible(minimum=0, maximum=LAYERS)]
Width = Annotated[int, Plausible(maximum=WIDTH)]
WidthOrNone = Annotated[int, Plausible(minimum=0, maximum=WIDTH)]
Heads = Annotated[int, Plausible(maximum=HEADS)]
Kernel = Annotated[int, Plausible(maximum=1000)]
Tokens = Annotated[int, Plausible(maximum=100_000_000, unit="tokens")]

MAMBA_SCAN, DELTA_SCAN = 7.0, 8.0
"""Operations of a scan for a token, a channel and a state: of Mamba-2, and of a gated delta rule
with its four products (Megatron-LM d98e8a64, `num_floating_point_operations`)."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Experts:
    """A mixture of experts in place of the dense MLP."""

    num_experts: Heads
    """Routed experts of a layer."""
    top_k: Heads
    """Routed experts that one token passes."""
    ffn_hidden_size: Width
    """Width of one expert's inner layer, of each of its two halves where it is gated."""
    shared_ffn_hidden_size: WidthOrNone = 0
    """Width of all shared experts of a layer together, which every token passes."""
    dense_layers: LayersOrNone = 0
    """Layers that keep the dense MLP: the first ones."""
    interleaved: Switch = False
    """Whether the dense layers lie evenly among the others instead, as in Llama 4 Maverick."""
    latent_size: Width | None = None
    """Width that tokens are compressed to on their way to routed experts, which are as wide
    (Nemotron 3 Super); null: they are not."""
    biases: Switch = False
    """Whether the experts' products add a bias and their activation is clamped, as in GPT-OSS
    (arXiv 2508.10925). The biases themselves are not counted."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    kv_rank: Width
    """Width that keys and values are compressed to."""
    q_rank: Width | None = None
    """Width that queries are compressed to; null: they are not."""
    qk_head_dim: Heads
    """Width of a head's query and key, without the rotary part."""
    rope_head_dim: Heads
    """Width of the rotary part, whose key all heads share."""
    v_head_dim: Heads
    """Width of a head's value."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class SparseAttention:
    """Latent attention to the tokens that an indexer selects (DeepSeek-V3.2, arXiv 2512.02556,
    section 2.1; GLM-5)."""

    top_k: Tokens
    """Tokens that a query attends to."""
    index_heads: Heads
    """Heads of the indexer, which scores all tokens."""
    index_head_dim: Heads
    """Width of such a head."""
    index_layers: Layers
    """Layers with an indexer; the others take the selection of one before them."""


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class Mamba:
    """Mamba-2 layers of a hybrid."""

    layers: Layers
    """Layers with a Mamba-2 block."""
    attention_layers: LayersOrNone
    """Layers with attention."""
    num_heads: Heads
    """Heads of a Mamba-2 block."""
    head_dim: Heads
    """Width of such a head."""
    state_size: Heads
    """Width of a head's state."""
    num_groups: Heads
    """Groups of heads that share the projections into and out of the state."""
    conv_kernel: Kernel = 4
    """Tokens that the convolution covers."""
    single_blocks: Switch = True
    """Whether a layer has one block: Mamba-2, attention or an MLP (Nemotron-H, arXiv 2504.03624).
    Otherwise an MLP or experts follow in each layer (Granite 4), and a layer may have Mamba-2 and
    attention side by side (Falcon-H1)."""

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


@dataclass(frozen=True, kw_only=True, config=CHECKED)
class LinearAttention:
    """Layers whose attention is a gated delta rule, linear in the sequence length (Gated DeltaNet,
    arXiv 2412.06464; Kimi Linear, arXiv 2510.26692)."""

    layers: Layers
    """Layers with it; all others have attention."""
    key_heads: Heads
    """Heads of queries and keys."""
    value_heads: Heads
    """Heads of values."""
    key_head_dim: Heads
    """Width of a head's query and key."""
    value_head_dim: Heads
    """Width of a head's value."""
    conv_kernel: Kernel = 4
    """Tokens that the convolution covers."""
    gate_rank: Width | None = None
    """Width that the gates of decay and output are compressed to (Kimi Linear); null: the output
    gate is projected like a value, and a head has one decay (Qwen3-Next)."""

    single_blocks: ClassVar[bool] = False

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
