"""Models, machines and strategies."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotune.schemas.wire import Positive, Wire
from search_spaces.dimension import LARGEST_WHOLE
from search_spaces.strategy import Precision
from search_spaces.transformer import ActivationCheckpointing

Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
"""A larger one is a slip, and too large for arithmetic."""


class ModelShape(Wire):
    """A transformer's shape; what is left out follows GPT-3 (`ffn_hidden_size` = 4 x hidden)."""

    name: str = "custom"
    num_layers: Positive
    hidden_size: Positive
    num_attention_heads: Positive
    num_query_groups: Positive | None = None
    ffn_hidden_size: Positive | None = None
    gated_mlp: bool = False
    seq_length: Positive = 2048
    vocab_size: Positive = 51200
    tied_embeddings: bool = True


class MachineShape(Wire):
    """A machine in full, as in a machine file (see `search_spaces.machine.Machine`)."""

    name: str
    description: str = ""
    gpu: str
    gpus_per_node: Positive
    max_nodes: Positive
    memory_gib: Annotated[float, Field(gt=0)]
    peak_tflops: Annotated[float, Field(gt=0)] | None
    memory_bandwidth_gb_per_s: Annotated[float, Field(gt=0)]
    intra_node_gb_per_s: Annotated[float, Field(gt=0)]
    inter_node_gb_per_s: Annotated[float, Field(gt=0)]
    gpu_idle_watt: Annotated[float, Field(ge=0)] | None = None
    gpu_max_watt: Annotated[float, Field(gt=0)] | None = None
    host_watt: Annotated[float, Field(ge=0)] | None = None
    sources: tuple[str, ...] = ()


class StrategyShape(Wire):
    """One strategy (see `search_spaces.strategy.Strategy`)."""

    tensor_parallel: Count
    pipeline_parallel: Count
    micro_batch_size: Count
    gradient_accumulation_steps: Count
    zero_stage: Annotated[int, Field(ge=0, le=3)]
    num_nodes: Count
    activation_checkpointing: ActivationCheckpointing = "full"
    sequence_parallel: bool = False
    flash_attention: bool = True
    virtual_stages: Count = 1
    precision: Precision = "bf16"


ModelChoice = str | ModelShape
"""A preset ("gpt-22b"), a bare size ("13B"), or a shape."""

MachineChoice = str | MachineShape
