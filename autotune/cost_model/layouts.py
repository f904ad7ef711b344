"""The strategies of a lattice as float columns, with all that their cost depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.parameters import Parameters
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

GIGA = 1e9
TERA = 1e12
GIB = 2.0**30


def total(parts: Mapping[str, Array]) -> Array:
    """The sum of all parts, shape (n,)."""
    return np.asarray(np.sum(list(parts.values()), axis=0), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Layouts:
    """What every term of the cost model takes. All columns have shape (n,).

    A replica axis shorter than 1, which only an illegal strategy has, counts as 1.
    """

    transformer: Transformer
    machine: Machine
    lattice: Lattice
    parameters: Parameters

    def column(self, dimension: str) -> Array:
        return self.lattice[dimension].astype(np.float64)

    def is_(self, dimension: str, value: Any) -> Mask:
        return np.asarray(self.lattice[dimension] == value, dtype=np.bool_)

    @cached_property
    def tensor_parallel(self) -> Array:
        return self.column("tensor_parallel")

    @cached_property
    def pipeline_parallel(self) -> Array:
        return self.column("pipeline_parallel")

    @cached_property
    def data_parallel(self) -> Array:
        return np.maximum(self.lattice.data_parallel, 1).astype(np.float64)

    @cached_property
    def micro_batches(self) -> Array:
        """Micro-batches of one step, which is `gradient_accumulation_steps`."""
        return self.column("gradient_accumulation_steps")

    @cached_property
    def virtual_stages(self) -> Array:
        return self.column("virtual_stages")

    @cached_property
    def zero_stage(self) -> Array:
        return self.column("zero_stage")

    @cached_property
    def has_pipeline(self) -> Mask:
        return self.pipeline_parallel > 1

    @cached_property
    def sequence_shards(self) -> Array:
        """Parts that norms, dropouts and residuals are cut into: TP with sequence parallelism."""
        return np.where(self.is_("sequence_parallel", True), self.tensor_parallel, 1.0)

    @cached_property
    def flash(self) -> Mask:
        return self.is_("flash_attention", True)

    @cached_property
    def full_checkpointing(self) -> Mask:
        return self.is_("activation_checkpointing", "full")

    @cached_property
    def selective_checkpointing(self) -> Mask:
        return self.is_("activation_checkpointing", "selective")

    @cached_property
    def element_bytes(self) -> Array:
        """Bytes of a weight or an activation: 4 in fp32, otherwise 2."""
        return np.where(self.is_("precision", "fp32"), 4.0, 2.0)

    @cached_property
    def tokens(self) -> Array:
        """Tokens of one micro-batch, `s x b`."""
        return self.column("micro_batch_size") * self.transformer.seq_length

    @cached_property
    def hidden_bytes(self) -> Array:
        """Bytes of one micro-batch's hidden state, `2 s b h` in 16 bits."""
        return self.element_bytes * self.tokens * self.transformer.hidden_size

    @cached_property
    def stage_layers(self) -> Array:
        """Layers of the stage that holds most: `ceil(L / p)`."""
        return np.ceil(self.transformer.num_layers / self.pipeline_parallel)

    @cached_property
    def peak_flops(self) -> Array:
        """Operations a second by data sheet at each strategy's precision; nominal on CPUs."""
        tera = self.machine.peak_tflops or self.parameters.nominal_tflops
        fp32 = self.element_bytes > 2
        return TERA * tera * np.where(fp32, self.parameters.fp32_rate, 1.0)

    @cached_property
    def memory_bytes_per_s(self) -> float:
        """What streaming kernels get of the device's memory bandwidth."""
        efficiency = self.parameters.memory_efficiency
        return GIGA * self.machine.memory_bandwidth_gb_per_s * efficiency
