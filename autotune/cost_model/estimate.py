"""The estimate: step time and memory of a whole lattice at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.cost_model.layouts import GIB, Array, Layouts, Mask, total
from autotune.cost_model.memory import memory_parts
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.step_time import time_parts
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """Predicted cost of n strategies; arrays have shape (n,).

    Attributes:
        iteration_time_s: seconds of one optimizer step; `time_parts_s` add up to it.
        memory_gib: of the fullest rank, GiB; `memory_parts_gib` add up to it.
        memory_limit_gib: what of one GPU's memory can be used, GiB.
        fits: whether `memory_gib` is within the limit.
    """

    iteration_time_s: Array
    memory_gib: Array
    time_parts_s: Mapping[str, Array]
    memory_parts_gib: Mapping[str, Array]
    memory_limit_gib: float
    fits: Mask


def estimate(
    transformer: Transformer,
    machine: Machine,
    lattice: Lattice,
    *,
    parameters: Parameters | None = None,
) -> Estimate:
    """Step time and memory of every strategy of `lattice`, without a loop over them.

    Strategies are taken to be legal; what no rule allows gets some figure, never an error.

    Args:
        parameters: constants of the machine; general knowledge of its kind where not given.
    """
    constants = parameters or Parameters.default(machine)
    layouts = Layouts(transformer, machine, lattice, constants)
    times = time_parts(layouts)
    memory = {name: size / GIB for name, size in memory_parts(layouts).items()}
    memory_gib = total(memory)
    limit = machine.memory_gib * constants.usable_memory
    return Estimate(
        iteration_time_s=total(times),
        memory_gib=memory_gib,
        time_parts_s=times,
        memory_parts_gib=memory,
        memory_limit_gib=limit,
        fits=memory_gib <= limit,
    )
