"""Groups of GPUs: how a world divides into replicas, stages and the parts of layers and experts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

Whole: TypeAlias = Any
"""A whole number, or an array of them of shape (n,)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ParallelGroups:
    """One world of GPUs, divided twice: for all layers but the experts by `tensor_parallel x
    context_parallel x pipeline_parallel x data_parallel`, and for the experts by
    `expert_tensor_parallel x expert_parallel x pipeline_parallel x expert_data_parallel` (Liu et
    al. 2025, "MoE Parallel Folding", arXiv 2504.14960, section 3.2).

    Ranks lie in this order, the first named side by side. Attributes are whole numbers, or arrays
    of shape (n,); quotients are rounded down where the world is left over.
    """

    tensor_parallel: Whole
    context_parallel: Whole
    pipeline_parallel: Whole
    expert_parallel: Whole = 1
    expert_tensor_parallel: Whole = 1
    world_size: Whole

    @classmethod
    def of(cls, value: Callable[[str], Whole], *, world_size: Whole) -> ParallelGroups:
        """Return the groups of the values of the dimensions by name."""
        return cls(
            tensor_parallel=value("tensor_parallel"),
            context_parallel=value("context_parallel"),
            pipeline_parallel=value("pipeline_parallel"),
            expert_parallel=value("expert_parallel"),
            expert_tensor_parallel=value("expert_tensor_parallel"),
            world_size=world_size,
        )

    @cached_property
    def model_parallel(self) -> Whole:
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @cached_property
    def expert_model_parallel(self) -> Whole:
        return self.expert_span * self.pipeline_parallel

    @cached_property
    def expert_span(self) -> Whole:
        return self.expert_tensor_parallel * self.expert_parallel

    @cached_property
    def _replicas(self) -> tuple[Whole, Whole]:
        replicas, left_over = divmod(self.world_size, self.model_parallel)
        return replicas, left_over

    @property
    def data_parallel(self) -> Whole:
        return self._replicas[0]

    @property
    def left_over(self) -> Whole:
        return self._replicas[1]

    @cached_property
    def _expert_replicas(self) -> tuple[Whole, Whole]:
        copies, left_over = divmod(self.world_size, self.expert_model_parallel)
        return copies, left_over

    @property
    def expert_data_parallel(self) -> Whole:
        return self._expert_replicas[0]

    @property
    def experts_left_over(self) -> Whole:
        return self._expert_replicas[1]

    @cached_property
    def dense_shards(self) -> Whole:
        return self.world_size // (self.tensor_parallel * self.pipeline_parallel)

    @property
    def expert_shards(self) -> Whole:
        return self.expert_data_parallel
