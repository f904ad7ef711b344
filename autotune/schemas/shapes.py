"""Models, machines and strategies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from autotune.schemas.wire import Description, Label, Positive, Wire
from search_spaces.dimensions import DIMENSIONS, LARGEST_WHOLE
from search_spaces.strategy import Precision
from search_spaces.transformer import ActivationCheckpointing

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
"""A larger one is a slip, and too large for arithmetic."""


def _pairs(value: Any) -> Any:
    """Return the keys and values of an object, by key: so strategies can be told apart and kept."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Mapping) or any(name in DIMENSIONS for name in value):
        reason = "these are not dimensions of a trainer's own with their values"
        raise PydanticCustomError("settings", "{reason}", {"reason": reason})
    return tuple(sorted(value.items()))


SettingValue = bool | int | float | Label
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
    ffn_hidden_size: Positive | None = None
    """Width of the MLP's inner layer, of each of its two halves where it is gated; null: 4 x
    `hidden_size`."""
    gated_mlp: bool = False
    """Whether the MLP is gated. Such a model is taken to follow Llama (RMSNorm, no biases, rotary
    positions), any other GPT-3."""
    seq_length: Positive = 2048
    """Tokens of one training sample."""
    vocab_size: Positive = 51200
    """Tokens of the vocabulary."""
    tied_embeddings: bool = True
    """Whether the output layer shares the input embedding's weight."""


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
    gpu_idle_watt: Annotated[float, Field(ge=0)] | None = None
    """Power of one GPU that is idle, W; null where not known, and then no energy is given."""
    gpu_max_watt: Annotated[float, Field(gt=0)] | None = None
    """Power of one GPU at its cap, W; null where not known, and then no energy is given."""
    host_watt: Annotated[float, Field(ge=0)] | None = None
    """Power of a node without its GPUs, W; null where not known, and then no energy is given."""
    sources: Annotated[tuple[Description, ...], Field(max_length=50)] = ()
    """Where each figure was read."""


class StrategyShape(Wire):
    """One strategy: how a model is laid out on a number of nodes.

    `num_nodes x gpus_per_node = tensor_parallel x pipeline_parallel x data_parallel`, and the
    global batch is `micro_batch_size x gradient_accumulation_steps x data_parallel` samples.
    """

    tensor_parallel: Count
    """GPUs that each layer is split over (TP)."""
    pipeline_parallel: Count
    """Stages that the layers are cut into (PP)."""
    micro_batch_size: Count
    """Samples of one micro-batch (MBS)."""
    gradient_accumulation_steps: Count
    """Micro-batches of each replica in one optimizer step (GAS)."""
    zero_stage: Annotated[int, Field(ge=0, le=3)]
    """What ZeRO shards over the replicas: 0 nothing, 1 the optimizer's state, 2 gradients as well,
    3 parameters as well."""
    num_nodes: Count
    """Nodes that it runs on."""
    activation_checkpointing: ActivationCheckpointing = "full"
    """What is computed again in the backward pass and not kept: nothing, the attention scores
    (`selective`), or each whole layer (`full`)."""
    sequence_parallel: bool = False
    """Whether norms and dropout are split along the sequence over the GPUs of a tensor-parallel
    group."""
    flash_attention: bool = True
    """Whether attention runs in one kernel that does not store the scores."""
    virtual_stages: Count = 1
    """Chunks of layers of each stage; more than one makes an interleaved pipeline (VP)."""
    precision: Precision = "bf16"
    """Number format of the matrix products."""
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
