"""The strategy: how one model is laid out on a number of nodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from search_spaces.transformer import ActivationCheckpointing

Precision = Literal["fp32", "bf16", "fp16"]


@dataclass(frozen=True, kw_only=True, order=True)
class Strategy:
    """One point of the search: a parallel layout with its batch.

    `world_size = num_nodes x gpus_per_node = tensor_parallel x pipeline_parallel x data_parallel`
    and `global_batch_size = micro_batch_size x gradient_accumulation_steps x data_parallel`.
    """

    tensor_parallel: int
    pipeline_parallel: int
    micro_batch_size: int
    gradient_accumulation_steps: int
    zero_stage: int
    num_nodes: int
    activation_checkpointing: ActivationCheckpointing = "full"
    sequence_parallel: bool = False
    flash_attention: bool = True
    virtual_stages: int = 1
    precision: Precision = "bf16"

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one replica of the model."""
        return self.tensor_parallel * self.pipeline_parallel

    def world_size(self, gpus_per_node: int) -> int:
        return self.num_nodes * gpus_per_node

    def data_parallel(self, gpus_per_node: int) -> int:
        """Return replicas of the model; whole only for a legal strategy."""
        return self.world_size(gpus_per_node) // self.model_parallel

    def global_batch_size(self, gpus_per_node: int) -> int:
        """Return the samples of one optimizer step."""
        samples_per_replica = self.micro_batch_size * self.gradient_accumulation_steps
        return samples_per_replica * self.data_parallel(gpus_per_node)

    def with_accumulation(self, gradient_accumulation_steps: int) -> Strategy:
        """Return the same layout with another number of micro-batches in a step."""
        return replace(self, gradient_accumulation_steps=gradient_accumulation_steps)

    def layout_key(self) -> tuple[Any, ...]:
        """Return what two strategies share when they differ in `gradient_accumulation_steps` alone.

        One trial measures a layout at two GAS values and so tells about all its twins.
        """
        return tuple([getattr(self, name) for name in LAYOUT])

    def short(self) -> str:
        """Return one line for people: `TP 4 · PP 8 · MBS 2 · GAS 16 · ZeRO-1 · 16 nodes …`."""
        parts = [
            f"TP {self.tensor_parallel}",
            f"PP {self.pipeline_parallel}",
            f"MBS {self.micro_batch_size}",
            f"GAS {self.gradient_accumulation_steps}",
            f"ZeRO-{self.zero_stage}",
            f"{self.num_nodes} node{'s' if self.num_nodes != 1 else ''}",
        ]
        if self.virtual_stages > 1:
            parts.append(f"VP {self.virtual_stages}")
        if self.sequence_parallel:
            parts.append("SP")
        kept = "no" if self.activation_checkpointing == "none" else self.activation_checkpointing
        return " · ".join([*parts, f"{kept} ckpt", self.precision])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


DIMENSIONS = tuple(field.name for field in fields(Strategy))
LAYOUT = tuple(name for name in DIMENSIONS if name != "gradient_accumulation_steps")
