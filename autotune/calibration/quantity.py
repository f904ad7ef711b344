"""The two calibrated quantities, time and memory, as functions of the constants."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import numpy as np

from autotune.calibration.settings import MEMORY_SPREAD, TIME_SPREAD, OwnLevels, effects
from autotune.cost_model.columns import LAYER_KINDS, SHAPE, Array, Columns
from autotune.cost_model.memory import allocated_memory, memory_parts, reserved_memory
from autotune.cost_model.parameters import Parameters, is_cpu, prior_spread
from autotune.cost_model.step_time import MicroBatch, sharing_micro_batch, time_parts
from autotune.cost_model.strategies import GIB, TERA, Strategies, total
from search_spaces.machine import Machine

GRADIENT_BYTES = (2.0, 4.0)
"""Bytes of one gradient: 16-bit, or accumulated in fp32. The trials decide between them."""

LABEL, ALLOCATED = 1.0, 2.0
"""Kinds of an observation of memory, other than a peak of reserved memory."""

NUDGE = 1e-4
"""Step of the numerical derivatives, in standard deviations of a constant's logarithm."""


def iteration_time_s(strategies: Strategies) -> Array:
    """Return seconds of one optimizer step, shape (n,), or (k, n) for k sets of constants.

    For the strategies of one model, the cost of a micro-batch is computed once for all strategies
    that share it.
    """
    if any(strategies.columns[name].ndim for name in (*SHAPE, *LAYER_KINDS)):
        return total(time_parts(strategies, MicroBatch.of(strategies)))
    first, which = sharing_micro_batch(strategies)
    shared = MicroBatch.of(strategies.take(first))
    return total(time_parts(strategies, shared.take(which)))


def memory_gib(strategies: Strategies) -> Array:
    return total(memory_parts(strategies)) / GIB


@dataclass(frozen=True, eq=False)
class Quantity:
    """Time or memory on one machine as a function of z.

    z holds, for each constant, the number of standard deviations by which its logarithm exceeds the
    prior median.

    Attributes:
        of_memory: True for memory, False for time.
        prior: the constants at z = 0.
        own: trainer-defined dimensions; their unknowns follow the constants in z.
        declared: constants that the trainer states and no trial changes.
    """

    machine: Machine
    prior: Parameters
    of_memory: bool
    own: tuple[OwnLevels, ...] = field(default=(), kw_only=True)
    declared: frozenset[str] = field(default=frozenset(), kw_only=True)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the constants in z. A constant that is 0 on this machine cannot be scaled and is
        left out."""
        return tuple(
            each.name
            for each in fields(Parameters)
            if each.metadata["spread"]
            and each.metadata["of_memory"] == self.of_memory
            and getattr(self.prior, each.name) != 0
            and each.name not in self.declared
        )

    @property
    def hypotheses(self) -> tuple[Quantity, ...]:
        """The same quantity for each possible gradient precision."""
        if not self.of_memory or is_cpu(self.machine) or "gradient_bytes" in self.declared:
            return (self,)
        return tuple(
            replace(self, prior=replace(self.prior, gradient_bytes=size)) for size in GRADIENT_BYTES
        )

    @property
    def unknowns(self) -> int:
        return len(self.names) + sum(len(each.values) for each in self.own)

    @cached_property
    def _spreads(self) -> Array:
        return np.array([prior_spread(name) for name in self.names])

    def parameters(self, z: Array) -> Parameters:
        """Return the constants at `z` of shape (c,), or, for `z` of shape (k, c), as columns of
        shape (k, 1)."""
        medians = np.array([getattr(self.prior, name) for name in self.names])
        values = medians * np.exp(self._spreads * z[..., : len(self.names)])
        columns = values.T[..., np.newaxis] if z.ndim > 1 else values
        return replace(self.prior, **dict(zip(self.names, columns, strict=True)))

    def log_value(self, z: Array, columns: Columns, labelled: Array) -> Array:
        """Return the logarithm of the quantity, shape (n,), or (k, n).

        Args:
            labelled: shape (n,), LABEL for a strategy of which only is known whether it fitted. Its
                value is then the device memory it needs, unusable memory included. ALLOCATED: what
                torch's allocator gave out; 0: what it reserved.
        """
        value = self._by_formulas(z, columns, labelled)
        if not self.own:
            return value
        spread = MEMORY_SPREAD if self.of_memory else TIME_SPREAD
        unknown = z[..., len(self.names) :]
        return value + unknown @ effects(columns, self.own, spread=spread)

    def _by_formulas(self, z: Array, columns: Columns, labelled: Array) -> Array:
        parameters = self.parameters(z)
        strategies = Strategies(columns, self.machine, parameters)
        if not self.of_memory:
            return np.log(iteration_time_s(strategies))
        parts = memory_parts(strategies)
        needed = np.log(total(parts) / GIB / parameters.usable_memory)
        if np.all(labelled == LABEL):
            return needed
        device, share = GIB * self.machine.memory_gib, parameters.cached_share
        reserved = np.log(reserved_memory(parts, device=device, cached_share=share) / GIB)
        allocated = np.log(allocated_memory(parts) / GIB)
        peak = np.where(labelled == ALLOCATED, allocated, reserved)
        return np.where(labelled == LABEL, needed, peak)

    def linearised(self, z: Array, columns: Columns, labelled: Array) -> tuple[Array, Array]:
        """Return the logarithm of the quantity at z, shape (n,), and its derivatives with respect
        to z, shape (n, c)."""
        nudged = np.vstack([z, z + NUDGE * np.eye(len(z))])
        values = self.log_value(nudged, columns, labelled)
        values = np.broadcast_to(values, (len(z) + 1, len(columns)))
        return values[0], (values[1:] - values[0]).T / NUDGE


class UniformQuantity(Quantity):
    """The quantities without the formulas: every strategy computes at the same share of the peak
    and needs the same memory. Their one constant is that level."""

    RATE = 0.3
    """Ratio of model FLOPs to the peak: a usual MFU."""
    FULLNESS = 0.8
    """Share of a GPU's memory: search spaces are usually chosen so that models nearly fill it."""
    RATE_SPREAD = 0.7
    FULLNESS_SPREAD = 0.5
    """Standard deviations of the logarithm of the level."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return ("level",)

    def _by_formulas(self, z: Array, columns: Columns, labelled: Array) -> Array:  # noqa: ARG002
        if self.of_memory:
            usual = np.full(len(columns), np.log(self.FULLNESS * self.machine.memory_gib))
            return usual + self.FULLNESS_SPREAD * z[..., :1]
        peak = TERA * float(self.machine.peak_tflops or self.prior.nominal_tflops)
        work = model_flops(columns) / (columns["world_size"] * peak * self.RATE)
        return np.log(np.broadcast_to(work, len(columns))) + self.RATE_SPREAD * z[..., :1]


def model_flops(columns: Columns) -> Array:
    """Return the model FLOPs of one step, shape (n,).

    `72 B s L h^2 (1 + s/6h + V/12Lh)` (Narayanan et al. 2021, eq. 3, without recomputation). A GPT
    MLP is assumed for every model, since a constant factor does not change how its strategies
    compare.
    """
    h, s, layers = columns["hidden_size"], columns["seq_length"], columns["num_layers"]
    samples = (
        columns["micro_batch_size"]
        * columns["gradient_accumulation_steps"]
        * columns["data_parallel"]
    )
    ends = 1.0 + s / (6.0 * h) + columns["vocab_size"] / (12.0 * layers * h)
    return 72.0 * samples * s * layers * h**2 * ends
