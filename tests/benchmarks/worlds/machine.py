"""Machines that differ from what is believed of them: in their constants, and in costs that no
formula of ours has. All of a machine's models meet the same ones, so what one teaches holds for the
next; nothing about them is noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from autotune.cost_model import Parameters, estimate, perturbed
from autotune.cost_model.columns import Array
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

Share = Callable[[Transformer, Lattice], Array]
"""How much of a cost each strategy has, shape (n,), 0 to 1."""


OF_TIME: Mapping[str, Share] = {
    # All wait for the slowest node, and of more nodes one is slower.
    "stragglers": lambda _, x: np.log2(x["num_nodes"]) / 7.0,
    "narrow products": lambda model, x: x["tensor_parallel"] * 1024.0 / model.hidden_size,
    # Half of a node's GPUs are near each other.
    "far links": lambda _, x: (x["tensor_parallel"] > x.gpus_per_node / 2).astype(np.float64),
    # The first and the last stage have more to do than their layers.
    "uneven stages": lambda model, x: 4.0 * x["pipeline_parallel"] / model.num_layers,
    "small micro-batches": lambda _, x: 1.0 / x["micro_batch_size"],
    "wide reductions": lambda _, x: np.log2(np.maximum(x.data_parallel, 1)) / 8.0,
}
OF_MEMORY: Mapping[str, Share] = {
    "buffers of deep pipelines": lambda _, x: np.log2(x["pipeline_parallel"]) / 6.0,
    "fragments of large micro-batches": lambda _, x: np.log2(x["micro_batch_size"]) / 5.0,
    "buffers of split products": lambda _, x: np.log2(x["tensor_parallel"]) / 3.0,
}

OF_MEMORY_SPREAD = 0.05
"""Standard deviation of the logarithm of memory by each of OF_MEMORY where its share is 1."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RealMachine:
    """One machine as it is.

    Attributes:
        parameters: its constants.
        of_time, of_memory: logarithm of the factor by each cost where its share is 1.
    """

    machine: Machine
    parameters: Parameters
    of_time: Mapping[str, float]
    of_memory: Mapping[str, float]

    @classmethod
    def of(cls, machine: Machine, *, seed: int, surprise: float) -> RealMachine:
        """Draw one.

        Args:
            surprise: standard deviation of the logarithm of time by each cost, which is never a
                gain.
        """
        generator = np.random.default_rng([seed, 1])
        slower = np.abs(generator.normal(0.0, surprise, len(OF_TIME)))
        fuller = generator.normal(0.0, OF_MEMORY_SPREAD, len(OF_MEMORY))
        return cls(
            machine=machine,
            parameters=perturbed(Parameters.default(machine), seed=1000 + seed),
            of_time=dict(zip(OF_TIME, slower.tolist(), strict=True)),
            of_memory=dict(zip(OF_MEMORY, fuller.tolist(), strict=True)),
        )

    def measure(self, transformer: Transformer, lattice: Lattice) -> tuple[Array, Array]:
        """Seconds of one step and GiB of the fullest rank, shape (n,) each."""
        formulas = estimate(transformer, self.machine, lattice, parameters=self.parameters)
        slower = _total(OF_TIME, self.of_time, transformer, lattice)
        fuller = _total(OF_MEMORY, self.of_memory, transformer, lattice)
        return formulas.iteration_time_s * np.exp(slower), formulas.memory_gib * np.exp(fuller)


def _total(
    shares: Mapping[str, Share],
    strengths: Mapping[str, float],
    transformer: Transformer,
    lattice: Lattice,
) -> Array:
    parts = [
        strengths[name] * np.clip(share(transformer, lattice), 0.0, 1.0)
        for name, share in shares.items()
    ]
    return np.asarray(np.sum(parts, axis=0))
