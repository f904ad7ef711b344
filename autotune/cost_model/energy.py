"""Energy of training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from autotune.cost_model.columns import Array
from autotune.cost_model.strategies import total
from search_spaces.machine import Machine

Figure = TypeVar("Figure", float, Array)

DRAW: Mapping[str, float] = {
    "matrix_multiplication": 1.0,
    "attention": 1.0,
    "recomputation": 1.0,
    "embedding_and_logits": 1.0,
    "elementwise": 0.8,
    "optimizer_step": 0.8,
    "tensor_parallel": 0.5,
    "context_parallel": 0.5,
    "zero_micro_batches": 0.5,
    "data_parallel": 0.5,
    "pipeline_transfer": 0.3,
}
"""How far a GPU goes from idle to its cap in each part of a step: matrix products run into the cap,
kernels that wait for memory come near, collectives half way; whoever waits idles. Estimates from
general knowledge, not calibrated."""


def training_energy_joule(
    machine: Machine, *, num_nodes: Figure, seconds: Figure, utilisation: Figure
) -> Figure | None:
    """Return `T x [n (P_idle + (P_cap - P_idle) u) + nodes x P_host]` over n GPUs.

    Args:
        utilisation: share of the way from idle to capped power, 0 to 1. A training GPU draws most
            of its cap whatever its MFU.

    Returns:
        None where the machine's power figures are not known.
    """
    idle, cap, host = machine.gpu_idle_watt, machine.gpu_max_watt, machine.host_watt
    if idle is None or cap is None or host is None:
        return None
    gpus = num_nodes * machine.gpus_per_node
    return seconds * (gpus * (idle + (cap - idle) * utilisation) + num_nodes * host)


def iteration_energy_joule(
    machine: Machine, *, num_nodes: Array, time_parts_s: Mapping[str, Array]
) -> Array | None:
    """Return the energy of one step on all nodes, shape (n,); None where no power is known."""
    seconds = total(time_parts_s)
    drawing = total({part: DRAW[part] * time_parts_s[part] for part in DRAW})
    return training_energy_joule(
        machine, num_nodes=num_nodes, seconds=seconds, utilisation=drawing / seconds
    )
