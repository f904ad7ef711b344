"""What a trial is predicted to cost before any has run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model import estimate
from autotune.schemas import EvaluatorName, ProtocolSpec
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

START_UP_S: Mapping[EvaluatorName, float] = {
    "simulated": 60.0,
    "slurm": 60.0,
    "local": 3.0,
}
"""Before a trial's first iteration: imports and communicators of a job on a cluster; ranks forked
from a warm process on this machine."""

HOUR_S = 3600.0


def trial_node_hours(
    transformer: Transformer,
    machine: Machine,
    strategies: Sequence[Strategy],
    accumulations: Sequence[Sequence[int]],
    *,
    protocol: ProtocolSpec,
    evaluator: EvaluatorName,
) -> NDArray[np.float64]:
    """Predicted node-hours of one trial of each strategy, shape (n,).

    Start-up, then the warm-up and the measured iterations at each of the strategy's
    `accumulations`, of which all have equally many; cut at the time limit.
    """
    if not strategies:
        return np.zeros(0)
    twins = [
        strategy.with_accumulation(gas)
        for strategy, values in zip(strategies, accumulations, strict=True)
        for gas in values
    ]
    lattice = Lattice.of(twins, gpus_per_node=machine.gpus_per_node)
    times = estimate(transformer, machine, lattice).iteration_time_s
    iterations = protocol.warmup_iterations + protocol.measured_iterations
    busy_s = iterations * times.reshape(len(strategies), -1).sum(axis=1)
    held_s = np.minimum(START_UP_S[evaluator] + busy_s, protocol.time_limit_s)
    nodes = np.array([strategy.num_nodes for strategy in strategies])
    return np.asarray(held_s * nodes / HOUR_S, dtype=np.float64)
