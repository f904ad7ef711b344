"""Ratio of the measured power of a machine's GPUs to its power figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration.observations import Observation, columns_of, weights_of
from autotune.cost_model.columns import Array
from autotune.cost_model.energy import gpu_energy_joule
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.step_time import MicroBatch, time_parts
from autotune.cost_model.strategies import Strategies, total
from search_spaces.machine import Machine

SPREAD = 0.25
"""Prior standard deviation of the logarithm of that ratio: sites cap power, and not all sensors
include the memory."""

NOISE = 0.1
"""Standard deviation of the logarithm of one trial's ratio: strategies differ in how busy they keep
the GPUs."""


@dataclass(frozen=True, kw_only=True)
class PowerScale:
    """Factor on the power of the GPUs, without hosts.

    Attributes:
        log_factor, deviation: mean and standard deviation of its logarithm.
        measured: number of observations with measured energy.
    """

    log_factor: float = 0.0
    deviation: float = SPREAD
    measured: int = 0

    @property
    def factor(self) -> float:
        return float(np.exp(self.log_factor))

    @classmethod
    def of(
        cls, machine: Machine, observations: Sequence[Observation], parameters: Parameters
    ) -> PowerScale:
        """Return the posterior of a log-normal factor, with normal errors around the weighted
        median, which is robust to outliers.

        Energy is compared over the measured time, split into parts as the formulas split theirs, so
        that errors of the predicted time do not count.

        Args:
            parameters: the calibrated constants.
        """
        sampled = [o for o in observations if o.gpu_joules_per_token and o.iteration_time_s]
        if not sampled:
            return cls()
        joule = np.array([o.gpu_joules_per_token for o in sampled]) * _tokens(sampled, machine)
        predicted = _gpu_joule(machine, sampled, parameters)
        if predicted is None:
            return cls()
        weights = weights_of(sampled)
        log_ratio = _weighted_median(np.log(joule / predicted), weights)
        known, prior = float(weights.sum()) / NOISE**2, 1.0 / SPREAD**2
        return cls(
            log_factor=log_ratio * known / (known + prior),
            deviation=(known + prior) ** -0.5,
            measured=len(sampled),
        )


def _tokens(observations: Sequence[Observation], machine: Machine) -> Array:
    gpus = machine.gpus_per_node
    samples = [o.strategy.global_batch_size(gpus) * o.transformer.seq_length for o in observations]
    return np.array(samples, dtype=np.float64)


def _gpu_joule(
    machine: Machine, observations: Sequence[Observation], parameters: Parameters
) -> Array | None:
    """Return the GPU energy of the measured steps by the power figures, in joules, shape (n,); None
    if the machine has none."""
    strategies = Strategies(columns_of(observations, machine), machine, parameters)
    parts = time_parts(strategies, MicroBatch.of(strategies))
    seconds = np.array([o.iteration_time_s for o in observations], dtype=np.float64)
    scale = seconds / total(parts)
    return gpu_energy_joule(
        machine,
        num_nodes=np.array([o.strategy.num_nodes for o in observations], dtype=np.float64),
        time_parts_s={name: part * scale for name, part in parts.items()},
    )


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    # Average the two middle values if their weights are equal.
    halves = np.searchsorted(reached, reached[-1] * np.array([0.5 - 1e-9, 0.5 + 1e-9]))
    return float(values[order][halves].mean())
