"""Models, machines and strategies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError

from autotune.schemas.wire import MOST_COUNTED, Description, Label, Positive, Wire
from search_spaces.dimensions import DIMENSIONS, LARGEST_WHOLE, TABLE, Dimension

NotNegative = Annotated[int, Field(ge=0, le=MOST_COUNTED)]

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
"""A larger one is a slip, and too large for arithmetic."""


def _pairs(value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Mapping) or any(name in DIMENSIONS for name in value):
        reason = "these are not dimensions of a trainer's own with their values"
        raise PydanticCustomError("settings", "{reason}", {"reason": reason})
    return tuple(sorted(value.items()))


MOST_SET = 10**18  # an integer of a larger size may not fit 64 bits
SettingValue = (
    bool
    | Annotated[int, Field(ge=-MOST_SET, le=MOST_SET)]
    | Annotated[float, Field(ge=-MOST_SET, le=MOST_SET)]
    | Label
)
Settings = Annotated[
    tuple[tuple[Label, SettingValue], ...],
    Field(max_length=50),
    BeforeValidator(_pairs),
    PlainSerializer(dict, return_type=dict[str, SettingValue]),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": name} for name in ("boolean", "integer", "number", "string")]
            },
        }
    ),
]
"""Dimensions of a trainer's own, by name, each with its value: on the wire an object."""


class ExpertsShape(Wire):
    """A mixture of experts in place of the dense MLP."""

    num_experts: Positive
    """Routed experts of a layer."""
    top_k: Positive
    """Routed experts that one token passes."""
    ffn_hidden_size: Positive
    """Width of one expert's inner layer, of each of its two halves where it is gated."""
    shared_ffn_hidden_size: NotNegative = 0
    """Width of all shared experts of a layer together, which every token passes."""
    dense_layers: NotNegative = 0
    """Layers that keep the dense MLP: the first ones."""
    interleaved: bool = False
    """Whether the dense layers lie evenly among the others instead, as in Llama 4 Maverick."""
    latent_size: Positive | None = None
    """Width that tokens are compressed to on their way to routed experts; null: they are not."""
    biases: bool = False
    """Whether the experts' products add a bias and their activation is clamped, as in GPT-OSS."""


class LatentAttentionShape(Wire):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

    kv_rank: Positive
    """Width that keys and values are compressed to."""
    q_rank: Positive | None = None
    """Width that queries are compressed to; null: they are not."""
    qk_head_dim: Positive
    """Width of a head's query and key, without the rotary part."""
    rope_head_dim: Positive
    """Width of the rotary part, whose key all heads share."""
    v_head_dim: Positive
    """Width of a head's value."""


class MambaShape(Wire):
    """Mamba-2 layers of a hybrid."""

    layers: Positive
    """Layers with a Mamba-2 block."""
    attention_layers: NotNegative
    """Layers with attention."""
    num_heads: Positive
    """Heads of a Mamba-2 block."""
    head_dim: Positive
    """Width of such a head."""
    state_size: Positive
    """Width of a head's state."""
    num_groups: Positive
    """Groups of heads that share the projections into and out of the state."""
    conv_kernel: Positive = 4
    """Tokens that the convolution covers."""
    single_blocks: bool = True
    """Whether a layer has one block: Mamba-2, attention or an MLP (Nemotron-H). Otherwise an MLP or
    experts follow in each layer (Granite 4, Falcon-H1)."""


class LinearAttentionShape(Wire):
    """Layers whose attention is a gated delta rule (Qwen3-Next, Kimi Linear)."""

    layers: Positive
    """Layers with it; all others have attention."""
    key_heads: Positive
    """Heads of queries and keys."""
    value_heads: Positive
    """Heads of values."""
    key_head_dim: Positive
    """Width of a head's query and key."""
    value_head_dim: Positive
    """Width of a head's value."""
    conv_kernel: Positive = 4
    """Tokens that the convolution covers."""
    gate_rank: Positive | None = None
    """Width that the gates are compressed to (Kimi Linear); null: they are not (Qwen3-Next)."""


class SparseAttentionShape(Wire):
    """Latent attention to the tokens that an indexer selects (DeepSeek-V3.2, GLM-5)."""

    top_k: Positive
    """Tokens that a query attends to."""
    index_heads: Positive
    """Heads of the indexer."""
    index_head_dim: Positive
    """Width of such a head."""
    index_layers: Positive
    """Layers with an indexer; the others take the selection of one before them."""


def _unless_dense(default: Literal[0, False] | None = None) -> Any:
    return Field(default, exclude_if=lambda value: not value)


class ModelShape(Wire):
    """A transformer's shape; what is left out follows GPT-3."""

    name: Label = "custom"
    """Name of the model."""
    num_layers: Positive
    """Transformer layers."""
    hidden_size: Positive
    """Width of the layers."""
    num_attention_heads: Positive
    """Attention heads of a layer."""
    num_query_groups: Positive | None = None
    """Key/value heads of a layer; null: as many as attention heads."""
    head_dim: Positive | None = None
    """Width of an attention head; null: `hidden_size / num_attention_heads`."""
    ffn_hidden_size: Positive | None = None
    """Width of the MLP's inner layer, of each of its two halves where it is gated; null: 4 x
    `hidden_size`."""
    gated_mlp: bool = False
    """Whether the MLP is gated. Such a model is taken to follow Llama (RMSNorm, no biases, rotary
    positions), and so is one with experts, latent attention or Mamba layers; any other GPT-3."""
    seq_length: Positive = 2048
    """Tokens of one training sample."""
    vocab_size: Positive = 51200
    """Tokens of the vocabulary."""
    tied_embeddings: bool = True
    """Whether the output layer shares the input embedding's weight."""
    experts: ExpertsShape | None = _unless_dense()
    """Experts in place of the dense MLP, but for the first layers; missing: none."""
    latent_attention: LatentAttentionShape | None = _unless_dense()
    """Latent attention in place of query groups; missing: none."""
    mtp_layers: NotNegative = _unless_dense(0)
    """Layers of multi-token prediction; missing: 0."""
    attention_window: Positive | None = _unless_dense()
    """Tokens that a windowed layer attends to; missing: none has a window."""
    window_layers: NotNegative = _unless_dense(0)
    """Layers with that window; missing: 0."""
    mamba: MambaShape | None = _unless_dense()
    """Mamba-2 and attention layers of a hybrid; missing: it is none."""
    linear_attention: LinearAttentionShape | None = _unless_dense()
    """Layers with linear attention; missing: none."""
    sparse_attention: SparseAttentionShape | None = _unless_dense()
    """The indexer that selects what latent attention attends to; missing: none."""
    attention_gate: bool = _unless_dense(False)
    """Whether attention's result is gated by a projection of its input; missing: it is not."""


Peak = Annotated[float | None, Field(gt=0, exclude_if=lambda peak: peak is None)]


class NarrowPeaks(Wire):
    """Dense matrix peaks of one GPU in formats narrower than 16 bits, TFLOP/s. One that is missing
    is twice the 16-bit peak in 8 bits and four times in 4."""

    fp8: Peak = None
    """8 bits with a scale for each tensor."""
    mxfp8: Peak = None
    """8 bits with a scale for each block of 32."""
    nvfp4: Peak = None
    """4 bits with a scale for each block of 16."""


class MachineShape(Wire):
    """A machine in full, as in a machine file: a cluster of equal nodes."""

    name: Label
    """Name of the machine."""
    description: Description = ""
    """The machine in a sentence."""
    gpu: Label
    """Kind of its GPUs. A GPU is what one rank runs on: on MI250X that is one GCD."""
    gpus_per_node: Positive
    """GPUs of a node."""
    max_nodes: Positive
    """Nodes of the machine."""
    memory_gib: Annotated[float, Field(gt=0)]
    """Memory of one GPU, GiB."""
    peak_tflops: Annotated[float, Field(gt=0)] | None
    """Dense 16-bit matrix peak of one GPU, TFLOP/s; null where none is published, and then no MFU
    is given."""
    memory_bandwidth_gb_per_s: Annotated[float, Field(gt=0)]
    """Memory bandwidth of one GPU, 10^9 bytes/s."""
    intra_node_gb_per_s: Annotated[float, Field(gt=0)]
    """From one GPU to another of the same node, in one direction, 10^9 bytes/s."""
    inter_node_gb_per_s: Annotated[float, Field(gt=0)]
    """One GPU's share of its node's network, in one direction, 10^9 bytes/s."""
    fast_domain: Annotated[Positive | None, Field(exclude_if=lambda gpus: gpus is None)] = None
    """GPUs that share the links of `intra_node_gb_per_s` where these reach beyond the node (72 in
    an NVL72); missing or null: those of a node."""
    peaks_tflops: Annotated[NarrowPeaks, Field(exclude_if=lambda peaks: peaks == NarrowPeaks())] = (
        NarrowPeaks()
    )
    """Peaks in narrower formats; missing where all follow from `peak_tflops`."""
    gpu_idle_watt: Annotated[float, Field(ge=0)] | None = None
    """Power of one GPU that is idle, W; null where not known, and then no energy is given."""
    gpu_max_watt: Annotated[float, Field(gt=0)] | None = None
    """Power of one GPU at its cap, W; null where not known, and then no energy is given."""
    host_watt: Annotated[float, Field(ge=0)] | None = None
    """Power of a node without its GPUs, W; null where not known, and then no energy is given."""
    sources: Annotated[tuple[Description, ...], Field(max_length=50)] = ()
    """Where each figure was read."""


def table_fields(field: Callable[[Dimension], tuple[Any, Any]]) -> Any:
    """Return a model with a field for each dimension.

    Args:
        field: type and `Field` of a dimension.
    """
    fields: dict[str, Any] = {dimension.name: field(dimension) for dimension in TABLE}
    return create_model("TableFields", __base__=Wire, **fields)


def _one_value(dimension: Dimension) -> tuple[Any, Any]:
    kind: Any = Count
    if dimension.is_switch:
        kind = bool
    elif dimension.is_named:
        kind = Literal[dimension.values]
    elif dimension.values:
        low, high = dimension.values[0], dimension.values[-1]
        kind = Annotated[int, Field(ge=low, le=high)]
    default: Any = ... if dimension.default is None else dimension.default
    absent = dimension.is_absent if dimension.of_experts else None
    return kind, Field(default, description=dimension.sentence, exclude_if=absent)


class StrategyShape(table_fields(_one_value), Wire):  # type: ignore[misc]
    """One strategy: how a model is laid out on a number of nodes.

    Its GPUs are `data_parallel` replicas of the model, each of `tensor_parallel x pipeline_parallel
    x context_parallel` GPUs, and the global batch is `micro_batch_size x
    gradient_accumulation_steps x data_parallel` samples.
    """

    if TYPE_CHECKING:  # the table's fields, which a type checker does not see

        def __init__(self, **values: Any) -> None: ...

    settings: Annotated[Settings, Field(exclude_if=lambda settings: not settings)] = ()
    """Dimensions that an adapter's trainer has of its own, each with its value; missing where it
    has none."""

    def value(self, dimension: str) -> Any:
        """Return its value of a dimension; None of one that it does not have."""
        if dimension in DIMENSIONS:
            return getattr(self, dimension)
        return dict(self.settings).get(dimension)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of all that it has a value of."""
        return (*DIMENSIONS, *(name for name, _ in self.settings))


ModelChoice = Label | ModelShape
"""A preset ("gpt-22b"), a bare size ("13B"), or a shape."""

MachineChoice = Label | MachineShape


class Subject(Wire):
    """The model and the machine that a prediction is about."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
