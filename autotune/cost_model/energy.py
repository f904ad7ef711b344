"""Energy of training: what the GPUs draw, and the hosts beside them."""

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
"""How far a GPU goes from idle to its cap in each part of a step: matrix products run into the cap,
kernels that wait for memory come near, and collectives keep links and memory busy. Whoever waits
for another GPU does so in a kernel that asks again and again, at full clock; only who waits for the
host idles. Estimates from general knowledge, on which calibration puts a factor."""


def gpu_energy_joule(
    machine: Machine, *, num_nodes: Array, time_parts_s: Mapping[str, Array]
) -> Array | None:
    """Return what the GPUs alone draw in one step, as a sensor of theirs would tell, shape (n,);
    None where their power is not known.

    `T n (P_idle + (P_cap - P_idle) u)` over n GPUs, where u is the share of the way from idle to
    capped power, mean over the step.
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
    """Return the energy of one step on all nodes, GPUs and hosts, shape (n,); None where no power
    is known.

    Args:
        power_factor: on what the GPUs draw.
    """
    joule = gpu_energy_joule(machine, num_nodes=num_nodes, time_parts_s=time_parts_s)
    if joule is None or machine.host_watt is None:
        return None
    return power_factor * joule + total(time_parts_s) * num_nodes * machine.host_watt


def _utilisation(time_parts_s: Mapping[str, Array]) -> Array:
    """Return the share of the way from idle to capped power, mean over a step, shape (n,)."""
    drawing = total(
        {part: DRAW[part] * time_parts_s[part] for part in DRAW if part in time_parts_s}
    )
    return drawing / total(time_parts_s)


def _gpu_watt(machine: Machine, utilisation: Array) -> Array | None:
    idle, cap = machine.gpu_idle_watt, machine.gpu_max_watt
    return None if idle is None or cap is None else idle + (cap - idle) * utilisation
