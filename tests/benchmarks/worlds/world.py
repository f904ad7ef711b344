"""Questions with their truth, and what trials would report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from autotune.cost_model.columns import Array
from autotune.search import SearchTrial
from autotune.search.layouts import Layouts
from search_spaces.batch import GlobalBatch
from search_spaces.catalog import load_machine, load_model, load_space
from search_spaces.choices import DimensionChoice
from search_spaces.space import SearchSpace
from tests.benchmarks.worlds.machine import RealMachine

WITHIN = 0.99
"""Of the best rate: a search is there."""

REPEATS = 0.01
"""Standard deviation of the logarithm of a trial that is repeated."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a campaign is asked.

    Attributes:
        batch: samples of a step; None where it is free.
        earlier: model and number of nodes of a campaign on the same machine before this one.
    """

    model: str
    machine: str
    nodes: int
    choices: Mapping[str, DimensionChoice]
    batch: int | None
    earlier: tuple[str, int]

    def before(self) -> Question:
        """The earlier campaign's."""
        model, nodes = self.earlier
        choices, batch = CHECKPOINTING, EARLIER_BATCH
        return replace(self, model=model, nodes=nodes, choices=choices, batch=batch)


CHECKPOINTING: dict[str, DimensionChoice] = {"activation_checkpointing": ["none", "full"]}
EARLIER_BATCH = 256


def _checkpointed(
    model: str, machine: str, *, nodes: int, batch: int, earlier: tuple[str, int]
) -> Question:
    return Question(
        model=model,
        machine=machine,
        nodes=nodes,
        choices=CHECKPOINTING,
        batch=batch,
        earlier=earlier,
    )


QUESTIONS: dict[str, Question] = {
    "175B on 16 Frontier nodes, table V": Question(
        model="gpt-175b",
        machine="frontier",
        nodes=16,
        choices=load_space("table-v"),
        batch=None,
        earlier=("gpt-22b", 4),
    ),
    "22B on 4 Frontier nodes": _checkpointed(
        "gpt-22b", "frontier", nodes=4, batch=512, earlier=("llama-2-7b", 2)
    ),
    "Llama 2 70B on 8 DGX A100": _checkpointed(
        "llama-2-70b", "dgx-a100", nodes=8, batch=512, earlier=("llama-2-13b", 2)
    ),
    "Llama 2 13B on 8 Polaris nodes": _checkpointed(
        "llama-2-13b", "polaris", nodes=8, batch=256, earlier=("llama-2-7b", 4)
    ),
    "Llama 3 8B on 2 DGX H100": _checkpointed(
        "llama-3-8b", "dgx-h100", nodes=2, batch=128, earlier=("llama-2-13b", 2)
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

    @property
    def target(self) -> float:
        return WITHIN * float(self.rates.max())

    def before(self) -> World:
        """The same machine, asked about another model."""
        return World.of(self.question.before(), seed=self.seed, surprise=self.surprise)

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
