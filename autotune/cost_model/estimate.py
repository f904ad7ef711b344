"""Estimate step time and memory of a whole lattice at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.cost_model.activations import ActivationBytes
from autotune.cost_model.columns import Array, Columns, Mask
from autotune.cost_model.energy import iteration_energy_joule
from autotune.cost_model.memory import allocated_memory, memory_parts, reserved_memory
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.step_time import MicroBatch, sharing_micro_batch, time_parts
from autotune.cost_model.strategies import GIB, Strategies, total
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

BLOCK = 8192
"""Rows estimated at a time: their columns fit into a core's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """Predicted cost of n strategies; arrays have shape (n,).

    Attributes:
        iteration_time_s: seconds of one optimizer step; the sum of `time_parts_s`.
        memory_gib: memory that the fullest rank needs in GiB; the sum of `memory_parts_gib`.
        memory_limit_gib: usable memory of one GPU in GiB.
        fits: whether `memory_gib` is within the limit.
        cached_share: of the device, freed blocks that torch's allocator keeps.
        machine, num_nodes: the machine, and each strategy's number of nodes.
    """

    iteration_time_s: Array
    memory_gib: Array
    time_parts_s: Mapping[str, Array]
    memory_parts_gib: Mapping[str, Array]
    memory_limit_gib: float
    fits: Mask
    cached_share: float
    machine: Machine
    num_nodes: Array

    @cached_property
    def allocated_gib(self) -> Array:
        """GiB that torch's allocator gives out on the fullest rank."""
        return allocated_memory(self.memory_parts_gib)

    @cached_property
    def reserved_gib(self) -> Array:
        """GiB that it takes from the device, the freed blocks that it keeps among them."""
        return reserved_memory(
            self.memory_parts_gib, device=self.machine.memory_gib, cached_share=self.cached_share
        )

    @cached_property
    def energy_joule(self) -> Array | None:
        """Joules of one optimizer step on all nodes; None if the machine's power figures are
        unknown."""
        return iteration_energy_joule(
            self.machine, num_nodes=self.num_nodes, time_parts_s=self.time_parts_s
        )

    def limit_leaving(self, headroom_gib: float) -> float:
        """Return the memory limit in GiB that leaves this headroom on a GPU."""
        return min(self.memory_limit_gib, self.machine.memory_gib - headroom_gib)

    def leaves(self, headroom_gib: float) -> Mask:
        """Return whether each strategy fits with this headroom, shape (n,)."""
        return np.asarray(self.memory_gib <= self.limit_leaving(headroom_gib))


def estimate(
    transformer: Transformer,
    machine: Machine,
    lattice: Lattice,
    *,
    parameters: Parameters | None = None,
) -> Estimate:
    """Estimate step time and memory of every strategy of `lattice`, vectorised.

    Strategies should be legal; an illegal one gets a meaningless number, never an error.

    Args:
        parameters: constants of the machine; its defaults if not given.
    """
    constants = parameters or Parameters.default(machine)
    strategies = Strategies(Columns.of(transformer, lattice), machine, constants)
    times, memory = costs(strategies)
    memory_gib = total(memory)
    limit = constants.usable_gib(machine)
    return Estimate(
        iteration_time_s=total(times),
        memory_gib=memory_gib,
        time_parts_s=times,
        memory_parts_gib=memory,
        memory_limit_gib=limit,
        fits=memory_gib <= limit,
        cached_share=float(constants.cached_share),
        machine=machine,
        num_nodes=lattice["num_nodes"].astype(np.float64),
    )


def estimate_in(space: SearchSpace, lattice: Lattice) -> Estimate:
    """Estimate strategies of a space before any trial, with what its trainer declares."""
    program = space.program
    parameters = Parameters.default(space.machine, program.tuning, program.states)
    return estimate(space.transformer, space.machine, lattice, parameters=parameters)


def costs(strategies: Strategies) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the parts of time (s) and of memory (GiB) for strategies of one model, shape (n,)
    each.

    The cost of a micro-batch is computed once for all strategies that share it, since most differ
    only in stages, accumulation or nodes.
    """
    first, which = sharing_micro_batch(strategies)
    sharing = strategies.take(first)
    micro_batch, activations = MicroBatch.of(sharing), ActivationBytes.of(sharing)
    n = len(strategies.columns)
    times: dict[str, Array] = {}
    memory: dict[str, Array] = {}
    for start in range(0, max(n, 1), BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        block, shared = strategies.take(rows), which[rows]
        sizes = memory_parts(block, activations.take(shared))
        _write(sizes, memory, rows, n, scale=1.0 / GIB)
        _write(time_parts(block, micro_batch.take(shared)), times, rows, n)
    return times, memory


def _write(
    parts: Mapping[str, Array], into: dict[str, Array], rows: slice, n: int, *, scale: float = 1.0
) -> None:
    if not into:
        # All parts in one array: NumPy asks for huge pages only for large ones.
        into.update(zip(parts, np.empty((len(parts), n)), strict=True))
    for name, values in parts.items():
        np.multiply(values, scale, out=into[name][rows])
