"""The model: a decoder-only transformer, its parameters and its floating-point operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from search_spaces.details import Details
from search_spaces.fields import CHECKED, Label, Plausible, Switch
from search_spaces.layers import (
    HEADS,
    WIDTH,
    Experts,
    Heads,
    LatentAttention,
    Layers,
    LayersOrNone,
    LinearAttention,
    Mamba,
    SparseAttention,
    Tokens,
)

ActivationCheckpointing = Literal[
    "none",
    "selective",
    "full",
    "layernorm",
    "mla_up_proj",
    "moe_act",
    "moe",
    "mlp",
    "layernorm+moe_act",
    "layernorm+moe",
    "mla_up_proj+mlp",
    "layernorm+mla_up_proj+mlp+moe_act",
]

RECOMPUTED_SETS: tuple[str, ...] = tuple(
    each for each in get_args(ActivationCheckpointing) if each not in ("none", "selective", "full")
)
"""Sets of parts of a layer that published runs recompute, joined by `+`."""

MODULES = tuple(each for each in RECOMPUTED_SETS if "+" not in each)
"""Parts of a layer that may be recomputed separately, as Megatron Core names them: its norms, the
up-projections of latent attention, the experts' activation functions, whole experts with their
router, the dense MLP."""


LayerFeature = Literal[
    "experts",
    "interleaved_experts",
    "latent_experts",
    "latent_attention",
    "sparse_attention",
    "linear_attention",
    "attention_gate",
    "window",
    "mamba",
    "mamba_mlp",
    "mtp",
]
"""What a model's layers may have in addition to GPT's and Llama's dense MLP and attention."""

UNLESS_DENSE = Field(exclude_if=lambda value: not value)
"""A field that a model of GPT's or Llama's layers leaves empty: its table does without it."""


@dataclass(frozen=True, kw_only=True)
class LayerKind:
    """Layers of a transformer that are alike. All figures are those of one layer.

    Attributes:
        count: how many layers are of this kind.
        mixer: the block that mixes tokens: attention, the model's Mamba-2 or linear attention
            ("recurrent"), or the two side by side; None: the layer has only an MLP.
        window: tokens that attention is limited to; None: the whole sequence.
        mlp: what follows the mixer; None: nothing.
    """

    transformer: Transformer
    count: int
    mixer: Literal["attention", "recurrent", "both"] | None = "attention"
    window: int | None = None
    mlp: Literal["dense", "experts"] | None = "dense"

    @property
    def has_attention(self) -> bool:
        return self.mixer in ("attention", "both")

    @property
    def recurrent(self) -> Mamba | LinearAttention | None:
        return self.transformer.recurrent if self.mixer in ("recurrent", "both") else None

    @property
    def attention_parameters(self) -> int:
        """Weights of the attention: query, key, value, gate and output projections."""
        if not self.has_attention:
            return 0
        t = self.transformer
        if (latent := t.latent_attention) is None:
            return t.hidden_size * ((2 + t.attention_gate) * t.query_size + 2 * t.kv_size)
        queries = (latent.q_rank or t.hidden_size) * t.query_size
        heads = t.num_attention_heads
        keys_and_values = latent.kv_rank * heads * (latent.qk_head_dim + latent.v_head_dim)
        output = heads * latent.v_head_dim * t.hidden_size
        return self.down_projection_parameters + queries + keys_and_values + output

    @property
    def down_projection_parameters(self) -> int:
        """Those of the attention's weights that compress its input and that tensor parallelism does
        not divide; 0 without latent attention."""
        latent = self.transformer.latent_attention
        if latent is None or not self.has_attention:
            return 0
        width = (latent.q_rank or 0) + latent.kv_rank + latent.rope_head_dim
        return self.transformer.hidden_size * width

    @property
    def recurrent_parameters(self) -> int:
        """Weights of a Mamba-2 block or of linear attention."""
        if (recurrent := self.recurrent) is None:
            return 0
        width = recurrent.projected_size + recurrent.inner_size
        return self.transformer.hidden_size * width + recurrent.gate_parameters

    @property
    def mlp_parameters(self) -> int:
        """Weights of the MLP that every token passes: the dense one, or the shared experts."""
        experts = self.transformer.experts
        if self.mlp == "experts" and experts is not None:
            return self._mlp(experts.shared_ffn_hidden_size)
        return self._mlp(self.transformer.ffn_hidden_size) if self.mlp == "dense" else 0

    @property
    def router_parameters(self) -> int:
        """Weights of the router of tokens to experts, and of projections to and from their
        width."""
        experts = self.transformer.experts
        if experts is None or self.mlp != "experts":
            return 0
        return self.transformer.hidden_size * (experts.num_experts + 2 * (experts.latent_size or 0))

    @property
    def expert_parameters(self) -> int:
        """Weights of all routed experts."""
        return self._experts(lambda experts: experts.num_experts)

    @property
    def active_expert_parameters(self) -> int:
        """Weights of the routed experts that one token passes."""
        return self._experts(lambda experts: experts.top_k)

    @property
    def vector_parameters(self) -> int:
        """Norms, biases, and convolution and vectors of a Mamba-2 block or linear attention."""
        t, h = self.transformer, self.transformer.hidden_size
        if t.has_biases:
            f = t.ffn_hidden_size
            return (t.query_size + 2 * t.kv_size) + h + f + h + 4 * h
        norms = h * ((self.mixer is not None) + (self.mlp is not None))
        if self.has_attention and t.latent_attention is not None:
            norms += (t.latent_attention.q_rank or 0) + t.latent_attention.kv_rank
        return norms + (self.recurrent.vector_parameters if self.recurrent else 0)

    @property
    def parameters(self) -> int:
        return self._shared_parameters + self.expert_parameters + self.vector_parameters

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes."""
        return self._shared_parameters + self.active_expert_parameters + self.vector_parameters

    @property
    def score_flops_per_token(self) -> float:
        """Forward operations of the products of queries, keys and values, for one token.

        The whole `s^2` score matrix is counted, though a causal kernel computes half of it; with a
        window, `s` times the window.
        """
        if not self.has_attention:
            return 0.0
        t = self.transformer
        reach = t.seq_length if self.window is None else min(self.window, t.seq_length)
        if t.sparse_attention is not None:
            reach = min(reach, t.sparse_attention.top_k)
        latent = t.latent_attention
        values = t.num_attention_heads * latent.v_head_dim if latent else t.query_size
        return 2.0 * reach * (t.query_size + values)

    @property
    def flops_per_token(self) -> float:
        """Forward operations for one token, multiply and add counted apart.

        With dense attention and a dense MLP `2h^2 (2 + 2k/a) + 2 (2 + gated) h f + 4 s h` with
        heads of `h/a` (Korthikanti et al. 2022, appendix A).
        """
        weights = self._shared_parameters + self.active_expert_parameters
        scan = self.recurrent.scan_flops if self.recurrent else 0.0
        return 2.0 * weights + self.score_flops_per_token + scan

    def recomputed_flops_per_token(self, part: str) -> float:
        """Return forward operations for one token of what activation checkpointing recomputes: the
        layer ("full"), the attention scores ("selective"), or a named part."""
        t = self.transformer
        latent = t.latent_attention if self.has_attention else None
        match part:
            case "full":
                return self.flops_per_token
            case "selective":
                return self.score_flops_per_token
            case "mla_up_proj" if latent is not None:
                heads = t.num_attention_heads
                queries = (latent.q_rank or 0) * t.query_size
                keys_and_values = latent.kv_rank * heads * (latent.qk_head_dim + latent.v_head_dim)
                return 2.0 * (queries + keys_and_values)
            case "mlp" if self.mlp == "dense":
                return 2.0 * self.mlp_parameters
            case "moe" if self.mlp == "experts":
                routed = self.active_expert_parameters + self.router_parameters
                return 2.0 * (routed + self.mlp_parameters)
        return 0.0

    @property
    def _shared_parameters(self) -> int:
        mixer = self.attention_parameters + self.recurrent_parameters
        return mixer + self.mlp_parameters + self.router_parameters

    def _experts(self, number: Callable[[Experts], int]) -> int:
        experts = self.transformer.experts
        if experts is None or self.mlp != "experts":
            return 0
        return number(experts) * self._mlp(experts.ffn_hidden_size, experts.latent_size)

    def _mlp(self, width: int, hidden: int | None = None) -> int:
        matrices = 3 if self.transformer.gated_mlp else 2
        return matrices * (hidden or self.transformer.hidden_size) * width


@checked_dataclass(frozen=True, kw_only=True, config=CHECKED)
class Transformer:
    """A decoder-only transformer's shape; what is left out follows GPT-3."""

    name: Label = "custom"
    """Name of the model."""
    num_layers: Layers
    """Transformer layers."""
    hidden_size: Annotated[int, Plausible(maximum=1_000_000)]
    """Width of the layers."""
    num_attention_heads: Heads
    """Attention heads of a layer."""
    num_query_groups: Annotated[int, Plausible(maximum=HEADS, or_default=True)] = field(
        default_factory=int  # 0, which __post_init__ replaces
    )
    """Key/value heads of a layer; missing or null: as many as attention heads."""
    head_dim: Heads | None = None
    """Width of an attention head; null: `hidden_size / num_attention_heads`. Qwen3 and GPT-OSS have
    wider ones."""
    ffn_hidden_size: Annotated[int, Plausible(maximum=WIDTH, or_default=True)] = field(
        default_factory=int
    )
    """Width of the MLP's inner layer, of each of its two halves where it is gated; missing or null:
    an expert's, or 4 x `hidden_size`."""
    gated_mlp: Switch = False
    """Whether the MLP is gated. Such a model is taken to follow Llama (RMSNorm, no biases, rotary
    positions), and so is one with experts, latent attention or Mamba layers; any other GPT-3
    (LayerNorm, biases, learned positions)."""
    seq_length: Tokens = 2048
    """Tokens of one training sample."""
    vocab_size: Annotated[int, Plausible(maximum=100_000_000)] = 51200
    """Tokens of the vocabulary."""
    tied_embeddings: Switch = True
    """Whether the output layer shares the input embedding's weight."""
    experts: Annotated[Experts | None, UNLESS_DENSE] = None
    """Experts in place of the dense MLP, but for the first layers; missing: none."""
    latent_attention: Annotated[LatentAttention | None, UNLESS_DENSE] = None
    """Latent attention in place of query groups, with head widths of its own; missing: none."""
    mtp_layers: Annotated[int, Plausible(minimum=0, maximum=100), UNLESS_DENSE] = 0
    """Layers of multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2); missing: 0."""
    attention_window: Annotated[Tokens | None, UNLESS_DENSE] = None
    """Tokens that a windowed layer attends to; missing: none has a window."""
    window_layers: Annotated[LayersOrNone, UNLESS_DENSE] = 0
    """Layers with that window, evenly among all; the others attend to everything; missing: 0."""
    mamba: Annotated[Mamba | None, UNLESS_DENSE] = None
    """Mamba-2 and attention layers of a hybrid; missing: it is none."""
    linear_attention: Annotated[LinearAttention | None, UNLESS_DENSE] = None
    """Layers with linear attention; missing: none."""
    sparse_attention: Annotated[SparseAttention | None, UNLESS_DENSE] = None
    """The indexer that selects what latent attention attends to; missing: none."""
    attention_gate: Annotated[Switch, UNLESS_DENSE] = False
    """Whether attention's result is gated by a projection of its input (Qwen3-Next); missing: it is
    not."""
    details: Annotated[Details | None, UNLESS_DENSE] = None
    """What launch files tell a trainer besides the shape; missing: not known."""

    def __post_init__(self) -> None:
        width = self.experts.ffn_hidden_size if self.experts else 4 * self.hidden_size
        usual = {"num_query_groups": self.num_attention_heads, "ffn_hidden_size": width}
        for name, value in usual.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)

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
            seq_length=seq_length,
            vocab_size=vocab_size,
        )

    def with_layers(self, num_layers: int | None) -> Transformer:
        """Return the same with so many layers, which its name says; itself where None.

        The dense first layers stay, as long as one layer with experts is left; other kinds keep
        their share.
        """
        if num_layers is None or num_layers == self.num_layers:
            return self
        share = num_layers / self.num_layers
        experts, mamba, linear = self.experts, self.mamba, self.linear_attention
        sparse = self.sparse_attention
        if experts is not None:
            dense = experts.dense_layers
            dense = min(round(share * dense) if experts.interleaved else dense, num_layers - 1)
            experts = replace(experts, dense_layers=dense)
        if mamba is not None:
            layers, attention = round(share * mamba.layers), round(share * mamba.attention_layers)
            left = num_layers - layers
            attention = min(attention, left) if mamba.single_blocks else max(attention, left)
            mamba = replace(mamba, layers=layers, attention_layers=attention)
        if linear is not None:
            linear = replace(linear, layers=round(share * linear.layers))
        if sparse is not None:
            sparse = replace(sparse, index_layers=max(1, round(share * sparse.index_layers)))
        windowed = round(share * self.window_layers)
        return replace(
            self,
            name=f"{self.name} with {num_layers} of {self.num_layers} layers",
            num_layers=num_layers,
            experts=experts,
            attention_window=self.attention_window if windowed else None,
            window_layers=windowed,
            mamba=mamba,
            linear_attention=linear,
            sparse_attention=sparse,
        )

    @property
    def has_biases(self) -> bool:
        """Whether it has GPT-3's biases, LayerNorms and learned positions."""
        return not (self.gated_mlp or self.experts or self.latent_attention or self.recurrent)

    @property
    def recurrent(self) -> Mamba | LinearAttention | None:
        """What mixes tokens in place of attention, in some layers or next to it."""
        return self.mamba or self.linear_attention

    @property
    def attention_layers(self) -> int:
        """Layers with attention."""
        if self.mamba is not None:
            return self.mamba.attention_layers
        return self.num_layers - (self.linear_attention.layers if self.linear_attention else 0)

    @property
    def head_width(self) -> int:
        """Width of a head's query and key, whether it is stated or follows."""
        if self.latent_attention is not None:
            return self.latent_attention.qk_head_dim + self.latent_attention.rope_head_dim
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def query_size(self) -> int:
        """Width of the queries over all heads, and of the attention's result but with latent
        attention."""
        return self.num_attention_heads * self.head_width

    @property
    def kv_size(self) -> int:
        """Width of the keys (and of the values) over all query groups."""
        return self.num_query_groups * self.head_width

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """Each kind of layer with its count; the counts add up to `num_layers`.

        Where layers with a dense MLP stand first, their kinds do.
        """
        if self.mamba is not None and self.mamba.single_blocks:
            counts = self.mamba.layers, self.mamba.attention_layers
            mlp: Literal["dense", "experts"] = "dense" if self.experts is None else "experts"
            hybrid = (
                LayerKind(transformer=self, count=counts[0], mixer="recurrent", mlp=None),
                LayerKind(transformer=self, count=counts[1], mlp=None),
                LayerKind(
                    transformer=self, count=self.num_layers - sum(counts), mixer=None, mlp=mlp
                ),
            )
            return tuple(kind for kind in hybrid if kind.count)
        dense = self.num_layers if self.experts is None else self.experts.dense_layers
        first: list[LayerKind] = []
        routed: list[LayerKind] = []
        for kind in self._mixers():
            own = dense * kind.count // self.num_layers
            first.append(replace(kind, count=own))
            routed.append(replace(kind, count=kind.count - own, mlp="experts"))
        left = dense - sum(kind.count for kind in first)
        first[0] = replace(first[0], count=first[0].count + left)
        routed[0] = replace(routed[0], count=routed[0].count - left)
        return tuple(kind for kind in (*first, *routed) if kind.count)

    def _mixers(self) -> tuple[LayerKind, ...]:
        recurrent = self.recurrent.layers if self.recurrent else 0
        both = recurrent + self.attention_layers - self.num_layers
        plain = self.attention_layers - both - self.window_layers
        mixers = (
            LayerKind(transformer=self, count=plain),
            LayerKind(transformer=self, count=self.window_layers, window=self.attention_window),
            LayerKind(transformer=self, count=recurrent - both, mixer="recurrent"),
            LayerKind(transformer=self, count=both, mixer="both"),
        )
        return tuple(kind for kind in mixers if kind.count)

    @property
    def predicting_kind(self) -> LayerKind:
        """The layers of multi-token prediction: attention, with experts where the model has any."""
        mlp: Literal["dense", "experts"] = "dense" if self.experts is None else "experts"
        return LayerKind(transformer=self, count=self.mtp_layers, mlp=mlp)

    @property
    def features(self) -> tuple[LayerFeature, ...]:
        """What its layers have that dense ones of GPT or Llama have not. A window that holds the
        whole sequence is none."""
        has: dict[LayerFeature, bool] = {
            "experts": self.experts is not None,
            "interleaved_experts": self.experts is not None and self.experts.interleaved,
            "latent_experts": self.experts is not None and self.experts.latent_size is not None,
            "latent_attention": self.latent_attention is not None,
            "sparse_attention": self.sparse_attention is not None,
            "linear_attention": self.linear_attention is not None,
            "attention_gate": self.attention_gate,
            "window": self.window_layers > 0 and (self.attention_window or 0) < self.seq_length,
            "mamba": self.mamba is not None and self.mamba.single_blocks,
            "mamba_mlp": self.mamba is not None and not self.mamba.single_blocks,
            "mtp": self.mtp_layers > 0,
        }
        return tuple(name for name, there in has.items() if there)

    @property
    def has_dense_mlp(self) -> bool:
        return any(kind.mlp == "dense" for kind in self.kinds)

    def has_parts(self, recomputed: str) -> bool:
        """Return whether it has all parts of a layer that a set of RECOMPUTED_SETS names."""
        has = {
            "layernorm": True,
            "mla_up_proj": self.latent_attention is not None,
            "moe_act": self.experts is not None,
            "moe": self.experts is not None,
            "mlp": self.has_dense_mlp,
        }
        return all(has[part] for part in recomputed.split("+"))

    @property
    def embedding_parameters(self) -> int:
        """The input embedding, `vocab_size x hidden_size` (the output layer has as many)."""
        return self.vocab_size * self.hidden_size

    @property
    def parameters(self) -> int:
        """All parameters but those of multi-token prediction (`mtp_parameters`); a tied output
        layer counts once (GPT-3: 175B, Llama 2 7B: 6.74B, DeepSeek-V3: 671B)."""
        return self._end_parameters + sum(kind.count * kind.parameters for kind in self.kinds)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token passes: all but the experts to which it is not routed."""
        return self._end_parameters + sum(
            kind.count * kind.active_parameters for kind in self.kinds
        )

    @property
    def mtp_parameters(self) -> int:
        """Parameters of multi-token prediction, which training has in addition to `parameters`.

        Each of its layers has a projection `2h x h` and three norms; embedding and output layer are
        the model's own.
        """
        h = self.hidden_size
        return self.mtp_layers * (self.predicting_kind.parameters + 2 * h * h + 3 * h)

    @property
    def trained_parameters(self) -> int:
        """All that a training holds: `parameters` and those of multi-token prediction."""
        return self.parameters + self.mtp_parameters

    @property
    def score_flops_per_token(self) -> float:
        """Forward operations of the products of queries, keys and values of all layers, those of
        multi-token prediction among them, for one token."""
        kinds = (*self.kinds, self.predicting_kind)
        return sum(kind.count * kind.score_flops_per_token for kind in kinds)

    @property
    def indexer_parameters(self) -> int:
        """Weights of all indexers of sparse attention."""
        if (sparse := self.sparse_attention) is None:
            return 0
        latent, heads, width = self.latent_attention, sparse.index_heads, sparse.index_head_dim
        queries = ((latent and latent.q_rank) or self.hidden_size) * heads * width
        return sparse.index_layers * (queries + self.hidden_size * (heads + width) + 2 * width)

    @property
    def indexer_flops_per_token(self) -> float:
        """Forward operations of all indexers for one token, which score the whole sequence."""
        if (sparse := self.sparse_attention) is None:
            return 0.0
        scores = sparse.index_layers * self.seq_length * sparse.index_heads * sparse.index_head_dim
        return 2.0 * (self.indexer_parameters + scores)

    @property
    def logits_flops_per_token(self) -> float:
        return 2.0 * self.embedding_parameters

    @property
    def mtp_flops_per_token(self) -> float:
        """Forward operations of multi-token prediction for one token, its logits among them."""
        projection = 4.0 * self.hidden_size**2
        each = self.predicting_kind.flops_per_token + projection + self.logits_flops_per_token
        return self.mtp_layers * each

    def model_flops(self, global_batch_size: int) -> float:
        """Return operations of one iteration with no recomputation: three times the forward pass.

        For a GPT this is `72 B s L h^2 (1 + s/6h + V/12Lh)` (Korthikanti et al. 2022, eq. 8).
        """
        layers = sum(kind.count * kind.flops_per_token for kind in self.kinds)
        forward = layers + self.indexer_flops_per_token
        forward += self.logits_flops_per_token + self.mtp_flops_per_token
        return 3.0 * forward * global_batch_size * self.seq_length

    def hardware_flops(
        self, global_batch_size: int, activation_checkpointing: ActivationCheckpointing
    ) -> float:
        """Return operations that the hardware executes in one iteration: model FLOPs and
        recomputation.

        Full checkpointing runs each layer's forward pass again (Narayanan et al. 2021, eq. 3, less
        its recomputed logits); selective only the attention scores, once (Korthikanti et al. 2022,
        eq. 9, count them three times). Of named parts only matrix products count, not norms and
        activation functions.
        """
        tokens = float(global_batch_size * self.seq_length)
        parts = activation_checkpointing.split("+")
        recomputed = sum(
            kind.count * kind.recomputed_flops_per_token(part)
            for kind in (*self.kinds, self.predicting_kind)
            for part in parts
        )
        recomputed += self.indexer_flops_per_token if "full" in parts else 0.0
        return self.model_flops(global_batch_size) + recomputed * tokens

    @property
    def _end_parameters(self) -> int:
        embeddings = self.embedding_parameters * (1 if self.tied_embeddings else 2)
        positions = self.seq_length * self.hidden_size if self.has_biases else 0
        norms = self.hidden_size * (2 if self.has_biases else 1)
        return embeddings + positions + norms + self.indexer_parameters
