"""Questions with their truth, and what trials would report.

Machines differ from what is believed of them: in their constants, and in costs that no formula of
ours has. All of a machine's models meet the same ones, so what one teaches holds for the next;
nothing about them is noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from autotune.cost_model import Parameters, estimate, perturbed
from autotune.cost_model.columns import Array
from autotune.search import SearchTrial
from autotune.search.layouts import Layouts
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.choices import DimensionChoice
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer

REPEATS = 0.01
"""Standard deviation of the logarithm of a trial that is repeated."""


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


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a campaign is asked.

    Attributes:
        batch: samples of a step; None where it is free.
    """

    model: str
    machine: str
    nodes: int
    batch: int | None
    choices: Mapping[str, DimensionChoice] = field(default_factory=lambda: CHECKPOINTING)


CHECKPOINTING: dict[str, DimensionChoice] = {"activation_checkpointing": ["none", "full"]}


QUESTIONS: dict[str, Question] = {
    "175B on 16 Frontier nodes, table V": Question(
        model="gpt-175b", machine="frontier", nodes=16, choices=load_space("table-v"), batch=None
    ),
    "22B on 4 Frontier nodes": Question(model="gpt-22b", machine="frontier", nodes=4, batch=512),
    "Llama 2 70B on 8 DGX A100": Question(
        model="llama-2-70b", machine="dgx-a100", nodes=8, batch=512
    ),
    "Llama 2 13B on 8 Polaris nodes": Question(
        model="llama-2-13b", machine="polaris", nodes=8, batch=256
    ),
    "Llama 3 8B on 2 DGX H100": Question(
        model="llama-3-8b", machine="dgx-h100", nodes=2, batch=128
    ),
}


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One question with its truth.

    Attributes:
        rates: shape (n,), tokens/s of each layout, 0 where it runs out of memory.
        seconds: of a step.
        peaks_gib: of the fullest rank.
    """

    question: Question
    seed: int
    surprise: float
    space: SearchSpace
    layouts: Layouts
    rates: Array
    seconds: Array
    peaks_gib: Array

    @classmethod
    def of(cls, question: Question, *, seed: int, surprise: float) -> World:
        dimensions = {k: v for k, v in question.choices.items() if k != "global_batch_size"}
        space = SearchSpace.build(
            load_model(question.model),
            load_machine(question.machine),
            nodes=question.nodes,
            choices=dimensions,
            batch=GlobalBatch(minimum=question.batch, maximum=question.batch),
        )
        layouts = Layouts.of(space, objective="tokens_per_s")
        real = RealMachine.of(space.machine, seed=seed, surprise=surprise)
        seconds, peaks = real.measure(space.transformer, layouts.lattice)
        tokens = np.exp(layouts.log_work)
        return cls(
            question=question,
            seed=seed,
            surprise=surprise,
            space=space,
            layouts=layouts,
            rates=np.where(peaks <= layouts.memory_limit_gib, tokens / seconds, 0.0),
            seconds=seconds,
            peaks_gib=peaks,
        )

    def trial(self, row: int) -> SearchTrial:
        """What a trial of this layout would report."""
        strategy = self.layouts.lattice.strategy(row)
        if self.rates[row] == 0.0:
            return SearchTrial(strategy=strategy, state="failed", out_of_memory=True)
        noise = math.exp(np.random.default_rng([self.seed, row]).normal(0.0, REPEATS))
        return SearchTrial(
            strategy=strategy,
            state="ok",
            iteration_time_s=float(self.seconds[row]) * noise,
            peak_memory_gib=float(self.peaks_gib[row]),
        )
