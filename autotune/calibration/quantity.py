"""The two quantities that are calibrated: what the cost model says of them, and how it changes with
each constant."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from autotune.cost_model.columns import Array, Columns
from autotune.cost_model.memory import memory_parts
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.step_time import MicroBatch, time_parts
from autotune.cost_model.strategies import GIB, Strategies, total
from search_spaces.machine import Machine

NUDGE = 1e-4
"""Of one standard deviation of a constant's logarithm, for a derivative."""


def iteration_time_s(strategies: Strategies) -> Array:
    """Return seconds of one optimizer step, shape (n,), or (k, n) for k sets of constants."""
    return total(time_parts(strategies, MicroBatch.of(strategies)))


def memory_gib(strategies: Strategies) -> Array:
    """Return GiB of the fullest rank, shape (n,), or (k, n) for k sets of constants."""
    return total(memory_parts(strategies)) / GIB


@dataclass(frozen=True, eq=False)
class Quantity:
    """Time or memory on one machine as a function of z: how many standard deviations the logarithm
    of each constant lies above what is generally known.

    Attributes:
        of_memory: memory, otherwise time.
        prior: constants where z is 0.
    """

    machine: Machine
    prior: Parameters
    of_memory: bool

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The constants, in the order of z. One that is 0 on this machine cannot be scaled."""
        return tuple(
            field.name
            for field in fields(Parameters)
            if field.metadata["spread"]
            and field.metadata["of_memory"] == self.of_memory
            and getattr(self.prior, field.name) != 0
        )

    @cached_property
    def _spreads(self) -> Array:
        spreads = {field.name: field.metadata["spread"] for field in fields(Parameters)}
        return np.array([spreads[name] for name in self.names])

    def parameters(self, z: Array) -> Parameters:
        """Return the constants at `z`, shape (c,), or (k, c): then each is a column of shape (k,
        1)."""
        medians = np.array([getattr(self.prior, name) for name in self.names])
        values = medians * np.exp(self._spreads * z)
        columns = values.T[..., np.newaxis] if z.ndim > 1 else values
        return replace(self.prior, **dict(zip(self.names, columns, strict=True)))

    def log_value(self, z: Array, columns: Columns, labelled: Array) -> Array:
        """Return the logarithm of the quantity, shape (n,), or (k, n).

        Args:
            labelled: shape (n,), 1 for a strategy of which only is known whether it fitted: then of
                the device memory that it needs, some of which cannot be used.
        """
        parameters = self.parameters(z)
        strategies = Strategies(columns, self.machine, parameters)
        if not self.of_memory:
            return np.log(iteration_time_s(strategies))
        return np.log(memory_gib(strategies)) - labelled * np.log(parameters.usable_memory)

    def linearised(self, z: Array, columns: Columns, labelled: Array) -> tuple[Array, Array]:
        """Return the logarithm of the quantity at z, shape (n,), and its derivatives by z, shape
        (n, c)."""
        nudged = np.vstack([z, z + NUDGE * np.eye(len(z))])
        values = self.log_value(nudged, columns, labelled)
        values = np.broadcast_to(values, (len(z) + 1, len(columns)))
        return values[0], (values[1:] - values[0]).T / NUDGE
