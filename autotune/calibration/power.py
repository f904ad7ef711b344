"""What the GPUs of a machine draw against what its power figures say."""

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
"""Standard deviation of the logarithm of a machine's power against its figures: caps that a site
sets, sensors that include memory or do not."""

NOISE = 0.1
"""The same of one trial's: strategies that keep GPUs busier than their parts say."""


@dataclass(frozen=True, kw_only=True)
class PowerScale:
    """Factor on what the GPUs draw, hosts apart.

    Attributes:
        log_factor, deviation: mean and standard deviation of its logarithm.
        measured: observations whose energy was measured.
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
        """Return the posterior of a log-normal factor: normal errors round their weighted median,
        which a trial that is far off does not move.

        Trials say how much power, not how long: it is the measured time that theirs is held
        against, cut into parts as the formulas cut theirs.

        Args:
            parameters: the calibrated constants.
        """
        sampled = [o for o in observations if o.gpu_joules_per_token and o.iteration_time_s]
        if not sampled:
            return cls()
        joule = np.array([o.gpu_joules_per_token for o in sampled]) * _tokens(sampled, machine)
        said = _gpu_joule(machine, sampled, parameters)
        if said is None:
            return cls()
        weights = weights_of(sampled)
        log_ratio = _weighted_median(np.log(joule / said), weights)
        known, prior = float(weights.sum()) / NOISE**2, 1.0 / SPREAD**2
        return cls(
            log_factor=log_ratio * known / (known + prior),
            deviation=(known + prior) ** -0.5,
            measured=len(sampled),
        )


def _tokens(observations: Sequence[Observation], machine: Machine) -> Array:
    """Return tokens of one step, shape (n,)."""
    gpus = machine.gpus_per_node
    samples = [o.strategy.global_batch_size(gpus) * o.transformer.seq_length for o in observations]
    return np.array(samples, dtype=np.float64)


def _gpu_joule(
    machine: Machine, observations: Sequence[Observation], parameters: Parameters
) -> Array | None:
    """Return what the power figures say of the measured steps, shape (n,)."""
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
    # Half way between the two middle ones where the weights come out even.
    halves = np.searchsorted(reached, reached[-1] * np.array([0.5 - 1e-9, 0.5 + 1e-9]))
    return float(values[order][halves].mean())
