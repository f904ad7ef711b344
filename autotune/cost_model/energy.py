"""Energy of training."""

from __future__ import annotations

from search_spaces.machine import Machine


def training_energy_joule(
    machine: Machine, *, num_nodes: int, seconds: float, utilisation: float
) -> float | None:
    """`T x [n (P_idle + (P_cap - P_idle) u) + nodes x P_host]` over n GPUs.

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
