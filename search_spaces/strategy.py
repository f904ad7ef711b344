"""Strategies: a parallel layout of a model on a number of nodes, with its batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

from search_spaces.dimensions import (
    BY_NAME,
    DIMENSIONS,
    IN_LINE,
    LARGEST_WHOLE,
    LAYOUT,
    Scalar,
    setting_text,
)
from search_spaces.fields import CHECKED, Label
from search_spaces.groups import ParallelGroups
from search_spaces.transformer import ActivationCheckpointing

Precision = Literal["fp32", "bf16", "fp16", "fp8", "fp8_current", "fp8_blockwise", "mxfp8", "nvfp4"]

MOST_SET = 10**18  # an integer of a larger size may not fit 64 bits
SettingValue = (
    bool
    | Annotated[int, Field(ge=-MOST_SET, le=MOST_SET)]
    | Annotated[float, Field(ge=-MOST_SET, le=MOST_SET)]
    | Label
)


def _pairs(value: Any) -> Any:
    if isinstance(value, tuple):
        return value
    if not isinstance(value, Mapping) or any(name in DIMENSIONS for name in value):
        reason = "these are not dimensions of a trainer's own with their values"
        raise PydanticCustomError("settings", "{reason}", {"reason": reason})
    return tuple(sorted(value.items()))


Settings = Annotated[
    tuple[tuple[Label, SettingValue], ...],
    Field(max_length=50, exclude_if=lambda settings: not settings),
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


def _of(name: str) -> Any:
    dimension = BY_NAME[name]
    bounds: dict[str, Any] = {}
    if dimension.is_counted:
        values = dimension.values or (1, LARGEST_WHOLE)
        bounds = {"ge": values[0], "le": values[-1]}
    absent = dimension.is_absent if dimension.of_experts else None
    return Field(description=dimension.sentence, exclude_if=absent, **bounds)


@dataclass(frozen=True, kw_only=True, order=True, config=CHECKED)
class Strategy:
    """One strategy: how a model is laid out on a number of nodes, with its batch.

    `num_nodes x gpus_per_node = data_parallel x tensor_parallel x pipeline_parallel x
    context_parallel`, and `global_batch_size = micro_batch_size x gradient_accumulation_steps x
    data_parallel` samples.
    """

    tensor_parallel: Annotated[int, _of("tensor_parallel")]
    pipeline_parallel: Annotated[int, _of("pipeline_parallel")]
    micro_batch_size: Annotated[int, _of("micro_batch_size")]
    gradient_accumulation_steps: Annotated[int, _of("gradient_accumulation_steps")]
    zero_stage: Annotated[int, _of("zero_stage")]
    num_nodes: Annotated[int, _of("num_nodes")]
    activation_checkpointing: Annotated[
        ActivationCheckpointing, _of("activation_checkpointing")
    ] = "full"
    sequence_parallel: Annotated[bool, _of("sequence_parallel")] = False
    flash_attention: Annotated[bool, _of("flash_attention")] = True
    virtual_stages: Annotated[int, _of("virtual_stages")] = 1
    precision: Annotated[Precision, _of("precision")] = "bf16"
    context_parallel: Annotated[int, _of("context_parallel")] = 1
    expert_parallel: Annotated[int, _of("expert_parallel")] = 1
    expert_tensor_parallel: Annotated[int, _of("expert_tensor_parallel")] = 1
    settings: Settings = ()
    """Dimensions that an adapter's trainer has of its own, each with its value; missing where it
    has none."""

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
        """Return what two strategies share when they differ only in `gradient_accumulation_steps`.

        One trial measures a layout at two GAS values and so tells about all its twins.
        """
        return (*[getattr(self, name) for name in LAYOUT], *self.settings)

    def short(self) -> str:
        """Return one line for people: `TP 4 · PP 8 · MBS 2 · GAS 16 · ZeRO-1 · 16 nodes …`."""
        parts = (dimension.brief(getattr(self, dimension.name)) for dimension in IN_LINE)
        own = (f"{name} {setting_text(value)}" for name, value in self.settings)
        return " · ".join([*filter(None, parts), *own])

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
