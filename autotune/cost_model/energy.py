"""Energy of training: GPUs and hosts."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.cost_model.columns import Array
from autotune.cost_model.strategies import total
from search_spaces.machine import Machine

DRAW: Mapping[str, float] = {
    "matrix_multiplication": 1.0,
    "attention": 1.0,
    "experts": 0.9,
    "recomputation": 1.0,
    "embedding_and_logits": 1.0,
    "elementwise": 0.8,
    "optimizer_step": 0.8,
    "tensor_parallel": 0.7,
    "context_parallel": 0.7,
    "all_to_all": 0.7,
    "zero_micro_batches": 0.7,
    "data_parallel": 0.7,
    "pipeline_transfer": 0.5,
    "pipeline_bubble": 0.5,
    "stragglers": 0.5,
}
"""Power of a GPU in each part of a step, from 0 (idle) to 1 (its cap). Matrix products run into the
cap, memory-bound kernels come near it, and collectives keep links and memory busy. Waiting for
another GPU is a polling kernel at full clock; only waiting for the host leaves a GPU idle. Typical
values, with a factor that calibration fits."""


def gpu_energy_joule(
    machine: Machine, *, num_nodes: Array, time_parts_s: Mapping[str, Array]
) -> Array | None:
    """Return the energy of the GPUs in one step as their sensors report it, in joules, shape (n,);
    None if their power figures are unknown.

    `T n (P_idle + (P_cap - P_idle) u)` over n GPUs, where u is the mean position between idle and
    capped power over the step.
    """
    seconds = total(time_parts_s)
    watt = _gpu_watt(machine, _utilisation(time_parts_s))
    return None if watt is None else seconds * num_nodes * machine.gpus_per_node * watt


def iteration_energy_joule(
    machine: Machine,
    *,
    num_nodes: Array,
    time_parts_s: Mapping[str, Array],
    power_factor: float = 1.0,
) -> Array | None:
    """Return the energy of one step on all nodes, GPUs and hosts, in joules, shape (n,); None if
    power figures are unknown.

    Args:
        power_factor: factor on the power of the GPUs.
    """
    joule = gpu_energy_joule(machine, num_nodes=num_nodes, time_parts_s=time_parts_s)
    if joule is None or machine.host_watt is None:
        return None
    return power_factor * joule + total(time_parts_s) * num_nodes * machine.host_watt


def _utilisation(time_parts_s: Mapping[str, Array]) -> Array:
    drawing = total(
        {part: DRAW[part] * time_parts_s[part] for part in DRAW if part in time_parts_s}
    )
    return drawing / total(time_parts_s)


def _gpu_watt(machine: Machine, utilisation: Array) -> Array | None:
    idle, cap = machine.gpu_idle_watt, machine.gpu_max_watt
    return None if idle is None or cap is None else idle + (cap - idle) * utilisation
