"""Strategies: a parallel layout of a model on a number of nodes, with its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from search_spaces.dimensions import (
    DIMENSIONS,
    IN_LINE,
    LAYOUT,
    Scalar,
    setting_text,
)
from search_spaces.groups import ParallelGroups
from search_spaces.transformer import ActivationCheckpointing

Precision = Literal["fp32", "bf16", "fp16", "fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"]


@dataclass(frozen=True, kw_only=True, order=True)
class Strategy:
    """One point of the search: a parallel layout with its batch.

    `world_size = num_nodes x gpus_per_node = model_parallel x data_parallel`
    and `global_batch_size = micro_batch_size x gradient_accumulation_steps x data_parallel`.

    Attributes:
        settings: dimensions of the trainer's own, by name, each with its value.
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
    context_parallel: int = 1
    expert_parallel: int = 1
    expert_tensor_parallel: int = 1
    settings: tuple[tuple[str, Scalar], ...] = ()

    @property
    def dimensions(self) -> tuple[str, ...]:
        """The names of all that it has a value of."""
        return (*DIMENSIONS, *(name for name, _ in self.settings))

    def value(self, dimension: str) -> Any:
        """Return its value of a dimension; None of one that it does not have."""
        if dimension in DIMENSIONS:
            return getattr(self, dimension)
        return dict(self.settings).get(dimension)

    def world_size(self, gpus_per_node: int) -> int:
        return self.num_nodes * gpus_per_node

    def groups(self, gpus_per_node: int) -> ParallelGroups:
        """Return how its GPUs divide into groups."""
        return ParallelGroups.of(partial(getattr, self), world_size=self.world_size(gpus_per_node))

    @property
    def model_parallel(self) -> int:
        """GPUs that hold one replica of the model."""
        return int(self.groups(1).model_parallel)

    def data_parallel(self, gpus_per_node: int) -> int:
        """Return replicas of the model; whole only for a legal strategy."""
        return int(self.groups(gpus_per_node).data_parallel)

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
        return (*[getattr(self, name) for name in LAYOUT], *self.settings)

    def short(self) -> str:
        """Return one line for people: `TP 4 · PP 8 · MBS 2 · GAS 16 · ZeRO-1 · 16 nodes …`."""
        said = (dimension.brief(getattr(self, dimension.name)) for dimension in IN_LINE)
        own = (f"{name} {setting_text(value)}" for name, value in self.settings)
        return " · ".join([*filter(None, said), *own])

    def as_dict(self) -> dict[str, Any]:
        """Return the value of each dimension, those of the trainer's own among them."""
        return {name: self.value(name) for name in self.dimensions}


def strategy_with(values: Mapping[str, Any]) -> Strategy:
    """Return the strategy of a value for each dimension; None leaves one of the trainer's own out.
    Inverse of `Strategy.as_dict`."""
    own = {name: value for name, value in values.items() if name not in DIMENSIONS}
    return Strategy(
        **{name: value for name, value in values.items() if name in DIMENSIONS},
        settings=tuple(sorted((name, value) for name, value in own.items() if value is not None)),
    )


def are_numbers(values: Sequence[Scalar]) -> bool:
    """Return whether values of a trainer's own dimension are ordered numbers."""
    return all(type(value) in {int, float} for value in values)


def in_order(values: Sequence[Scalar]) -> tuple[Scalar, ...]:
    """Return numbers ascending, other values unchanged."""
    if not are_numbers(values):
        return tuple(values)
    return tuple(sorted(value for value in values if not isinstance(value, str)))
