"""ZeRO stages that cannot have been as a table states them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotune.cost_model.columns import Columns, Mask
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.states import fullest_stage_parameters, state_bytes
from autotune.cost_model.strategies import GIB, Strategies
from search_spaces.machine import Machine
from tests.benchmarks.accuracy.tables import PublishedRow

RAN = ("ok", "fits")
ALL_DIVIDED = 3.0
LEAST_GRADIENT_BYTES = 2.0


def as_run(columns: Columns, rows: Sequence[PublishedRow], machine: Machine) -> Columns:
    """Columns of one stack, with stage 3 in place of a stated stage that cannot have been used.

    Tables give the stage that a framework is known for where a run divided its weights, too (FSDP,
    or a branch for stage 3). Where one row ran whose weights, gradients and optimizer states alone
    are more than its GPU has, all rows of the stack with that stage are taken to have divided
    everything: a stack has one way to do it.

    Args:
        machine: with the memory of the rows' GPU.
    """
    stated = np.array([row.number("zero_stage") is not None for row in rows], dtype=bool)
    ran = np.array([row["status"] in RAN for row in rows], dtype=bool)
    stage = np.broadcast_to(columns["zero_stage"], len(columns))
    impossible = stated & ran & (stage >= 1) & _too_large(columns, machine)
    divided = stated & np.isin(stage, stage[impossible])
    values = {**columns.values, "zero_stage": np.where(divided, ALL_DIVIDED, stage)}
    return replace(columns, values=values)


def _too_large(columns: Columns, machine: Machine) -> Mask:
    """By the least that mixed-precision Adam needs: states alone, with gradients of 16 bits."""
    least = replace(Parameters.default(machine), gradient_bytes=LEAST_GRADIENT_BYTES)
    strategies = Strategies(columns, machine, least)
    needed = state_bytes(strategies).total * fullest_stage_parameters(strategies)
    return np.broadcast_to(needed > machine.memory_gib * GIB, len(columns))
