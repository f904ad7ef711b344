"""The model: a decoder-only transformer, its parameters and its floating-point operations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

ActivationCheckpointing = Literal["none", "selective", "full"]


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """Shape of a decoder-only transformer.

    A model with a gated MLP is taken to follow Llama (RMSNorm, no biases, rotary positions); one
    without follows GPT-3 (LayerNorm, biases, learned positions).

    Attributes:
        ffn_hidden_size: width of the MLP's inner layer, of each of its two halves when gated.
        num_query_groups: key/value heads; equal to `num_attention_heads` without grouping.
        head_dim: width of a head; None: `hidden_size / num_attention_heads`. Qwen3 and GPT-OSS have
            wider ones.
        seq_length: tokens of one training sample.
        tied_embeddings: whether the output layer shares the input embedding's weight.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_attention_heads: int
    num_query_groups: int
    ffn_hidden_size: int
    gated_mlp: bool = False
    seq_length: int = 2048
    vocab_size: int = 51200
    tied_embeddings: bool = True
    head_dim: int | None = None

    @classmethod
    def gpt(
        cls,
        name: str,
        *,
        num_layers: int,
        hidden_size: int,
        num_attention_heads: int,
        seq_length: int = 2048,
        vocab_size: int = 51200,
    ) -> Transformer:
        """Return a GPT-3-like model: four times wider MLP, one key/value head for each query
        head."""
        return cls(
            name=name,
            num_layers=num_layers,
            hidden_size=hidden_size,
            num_attention_heads=num_attention_heads,
            num_query_groups=num_attention_heads,
            ffn_hidden_size=4 * hidden_size,
            seq_length=seq_length,
            vocab_size=vocab_size,
        )

    def with_layers(self, num_layers: int | None) -> Transformer:
        """Return the same with so many layers, which its name says; itself where None."""
        if num_layers in (None, self.num_layers):
            return self
        name = f"{self.name} with {num_layers} of {self.num_layers} layers"
        return replace(self, name=name, num_layers=num_layers)

    @property
    def head_width(self) -> int:
        """Width of a head, whether it is stated or follows."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def query_size(self) -> int:
        """Width of the queries (and of the attention's result) over all heads."""
        return self.num_attention_heads * self.head_width

    @property
    def kv_size(self) -> int:
        """Width of the keys (and of the values) over all query groups."""
        return self.num_query_groups * self.head_width

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention: query, key, value and output projections."""
        return self.hidden_size * (2 * self.query_size + 2 * self.kv_size)

    @property
    def mlp_parameters(self) -> int:
        """Weights of one layer's MLP: two matrices, three when gated."""
        return (3 if self.gated_mlp else 2) * self.hidden_size * self.ffn_hidden_size

    @property
    def vector_parameters(self) -> int:
        """Norms and biases of one layer."""
        h, f = self.hidden_size, self.ffn_hidden_size
        return 2 * h if self.gated_mlp else (self.query_size + 2 * self.kv_size) + h + f + h + 4 * h

    @property
    def layer_parameters(self) -> int:
        return self.attention_parameters + self.mlp_parameters + self.vector_parameters

    @property
    def embedding_parameters(self) -> int:
        """The input embedding, `vocab_size x hidden_size` (the output layer has as many)."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """All parameters; a tied output layer counts once (GPT-3: 175B, Llama 2 7B: 6.74B)."""
        embeddings = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        positions = 0 if self.gated_mlp else self.seq_length * self.hidden_size
        final_norm = self.hidden_size * (1 if self.gated_mlp else 2)
        return self.num_layers * self.layer_parameters + embeddings + positions + final_norm

    @property
    def layer_flops_per_token(self) -> float:
        """Forward operations of one layer for one token, multiply and add counted apart.

        `2h^2 (2 + 2k/a) + 2 (2 + gated) h f + 4 s h` with heads of `h/a`: the whole `s^2` score
        matrix is counted, though a causal kernel computes half of it (Korthikanti et al. 2022,
        appendix A).
        """
        weights = self.attention_parameters + self.mlp_parameters
        return 2.0 * weights + 4.0 * self.seq_length * self.query_size

    @property
    def logits_flops_per_token(self) -> float:
        return 2.0 * self.embedding_parameters

    def model_flops(self, global_batch_size: int) -> float:
        """Return operations of one iteration with no recomputation: three times the forward pass.

        For a GPT this is `72 B s L h^2 (1 + s/6h + V/12Lh)` (Korthikanti et al. 2022, eq. 8).
        """
        forward = self.num_layers * self.layer_flops_per_token + self.logits_flops_per_token
        return 3.0 * forward * global_batch_size * self.seq_length

    def hardware_flops(
        self, global_batch_size: int, activation_checkpointing: ActivationCheckpointing
    ) -> float:
        """Return operations that the hardware executes in one iteration: model FLOPs and
        recomputation.

        Full checkpointing runs each layer's forward pass again (Narayanan et al. 2021, eq. 3, less
        its recomputed logits); selective only the attention scores, once (Korthikanti et al. 2022,
        eq. 9, count them three times).
        """
        tokens = float(global_batch_size * self.seq_length)
        recomputed = {
            "none": 0.0,
            "selective": 4.0 * self.seq_length * self.query_size,
            "full": self.layer_flops_per_token,
        }[activation_checkpointing]
        return self.model_flops(global_batch_size) + self.num_layers * recomputed * tokens
