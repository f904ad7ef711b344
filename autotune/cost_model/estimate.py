"""The estimate: step time and memory of a whole lattice at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autotune.cost_model.activations import KeptBytes
from autotune.cost_model.columns import Array, Columns, Mask
from autotune.cost_model.energy import iteration_energy_joule
from autotune.cost_model.memory import memory_parts
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.step_time import MicroBatch, sharing_micro_batch, time_parts
from autotune.cost_model.strategies import GIB, Strategies, total
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

BLOCK = 8192
"""Rows that are estimated at a time: their columns stay in a core's cache."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """Predicted cost of n strategies; arrays have shape (n,).

    Attributes:
        iteration_time_s: seconds of one optimizer step; `time_parts_s` add up to it.
        memory_gib: of the fullest rank, GiB; `memory_parts_gib` add up to it.
        memory_limit_gib: what of one GPU's memory can be used, GiB.
        fits: whether `memory_gib` is within the limit.
        machine, num_nodes: where they run, and on how many nodes each.
    """

    iteration_time_s: Array
    memory_gib: Array
    time_parts_s: Mapping[str, Array]
    memory_parts_gib: Mapping[str, Array]
    memory_limit_gib: float
    fits: Mask
    machine: Machine
    num_nodes: Array

    @cached_property
    def energy_joule(self) -> Array | None:
        """Of one optimizer step on all nodes; None where the machine's power is not known."""
        return iteration_energy_joule(
            self.machine, num_nodes=self.num_nodes, time_parts_s=self.time_parts_s
        )

    def limit_leaving(self, headroom_gib: float) -> float:
        """Return what a strategy may need of one GPU's memory to fit and leave this much, GiB."""
        return min(self.memory_limit_gib, self.machine.memory_gib - headroom_gib)

    def leaves(self, headroom_gib: float) -> Mask:
        """Return whether each strategy fits and leaves this much memory, shape (n,)."""
        return np.asarray(self.memory_gib <= self.limit_leaving(headroom_gib))


def estimate(
    transformer: Transformer,
    machine: Machine,
    lattice: Lattice,
    *,
    parameters: Parameters | None = None,
) -> Estimate:
    """Estimate step time and memory of every strategy of `lattice`, without a loop over them.

    Strategies are taken to be legal; what no rule allows gets some figure, never an error.

    Args:
        parameters: constants of the machine; general knowledge of its kind where not given.
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
        machine=machine,
        num_nodes=lattice["num_nodes"].astype(np.float64),
    )


def costs(strategies: Strategies) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the parts of time (s) and of memory (GiB) of strategies of one model, each of shape
    (n,).

    What a micro-batch takes and keeps is worked out once for all strategies that share it: most
    differ in stages, accumulation or nodes alone.
    """
    first, which = sharing_micro_batch(strategies)
    sharing = strategies.take(first)
    micro_batch, kept = MicroBatch.of(sharing), KeptBytes.of(sharing)
    n = len(strategies.columns)
    times: dict[str, Array] = {}
    memory: dict[str, Array] = {}
    for start in range(0, max(n, 1), BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        block, shared = strategies.take(rows), which[rows]
        sizes = memory_parts(block, kept.take(shared))
        _write(sizes, memory, rows, n, scale=1.0 / GIB)
        _write(time_parts(block, micro_batch.take(shared)), times, rows, n)
    return times, memory


def _write(
    parts: Mapping[str, Array], into: dict[str, Array], rows: slice, n: int, *, scale: float = 1.0
) -> None:
    for name, values in parts.items():
        np.multiply(values, scale, out=into.setdefault(name, np.empty(n))[rows])
