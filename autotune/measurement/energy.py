"""Energy per token, from sampled power and the machine's power figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.cost_model import estimate
from autotune.cost_model.energy import gpu_energy_joule
from autotune.cost_model.strategies import total
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

JOULES_PER_MWH = 3.6e9

TimedIterations = tuple[int, Sequence[float]]
"""A GAS, and the seconds of each iteration that was timed at it."""


def joules_per_token(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    *,
    iteration_time_s: float,
    timed: Sequence[TimedIterations],
    sampled: float | None = None,
    power_factor: float = 1.0,
    hosts: bool = True,
) -> float | None:
    """Return the energy per token of all nodes at the strategy's own GAS, J.

    `(f E_GPU(t) + t nodes P_host) / tokens`, where E_GPU follows from the power figures over the
    measured time, which the cost model divides into its parts. If the GPUs' power was sampled, f is
    the ratio of samples to figures at the measured GAS values, whose share of pipeline waiting
    differs from that at the strategy's own GAS.

    Args:
        iteration_time_s: at the strategy's own GAS.
        timed: what the trial ran; required with `sampled`.
        sampled: energy of all GPUs per token over the iterations of `timed`, J.
        power_factor: f if nothing was sampled.
        hosts: whether the hosts' energy counts; otherwise only the GPUs'.

    Returns:
        None if the machine's power figures are unknown.
    """
    host_watt = machine.host_watt if hosts else 0.0
    if host_watt is None:
        return None
    ran = [(gas, seconds) for gas, seconds in timed if len(seconds)]
    twins = [strategy, *(strategy.with_accumulation(gas) for gas, _ in ran)]
    lattice = Lattice.of(twins, gpus_per_node=machine.gpus_per_node)
    mean_s = np.array([iteration_time_s, *(float(np.mean(seconds)) for _, seconds in ran)])
    parts = estimate(transformer, machine, lattice).time_parts_s
    scale = mean_s / total(parts)
    gpu_joule = gpu_energy_joule(
        machine,
        num_nodes=lattice["num_nodes"].astype(np.float64),
        time_parts_s={name: part * scale for name, part in parts.items()},
    )
    if gpu_joule is None:
        return None
    tokens = lattice.global_batch_size * transformer.seq_length
    factor = power_factor
    if sampled and ran:
        iterations = np.array([len(seconds) for _, seconds in ran])
        factor = sampled * float(iterations @ tokens[1:]) / float(iterations @ gpu_joule[1:])
    of_hosts = iteration_time_s * strategy.num_nodes * host_watt
    return (factor * float(gpu_joule[0]) + of_hosts) / float(tokens[0])


def power_factor_of(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    *,
    iteration_time_s: float,
    tokens_per_joule: float | None,
) -> float:
    """Return the GPUs' draw relative to the power figures for a trial with this energy: the
    `power_factor` with which `joules_per_token` returns it; 1 if no energy is known.

    A sampled or calibrated energy thus carries over to a layout's other GAS values and node counts.
    """
    plain, doubled = (
        joules_per_token(
            transformer,
            machine,
            strategy,
            iteration_time_s=iteration_time_s,
            timed=(),
            power_factor=factor,
        )
        for factor in (1.0, 2.0)
    )
    if tokens_per_joule is None or plain is None or doubled is None:
        return 1.0
    return 1.0 + (1.0 / tokens_per_joule - plain) / (doubled - plain)
