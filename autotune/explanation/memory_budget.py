"""Memory calculator: where the memory of a strategy goes, whether it fits, and what would make it
fit."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.calibration import Calibration
from autotune.cost_model.columns import Columns
from autotune.explanation.parts import MEMORY_WORDS
from autotune.explanation.what_if import SHOWN, WhatIf
from autotune.schemas.predictions import LIKELY_TO_FIT, LayoutChange
from autotune.words.dimensions import gibibytes, percent
from search_spaces.lattice import Lattice
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SURE = 0.99
"""Probability above which a sentence omits it."""

SHOWN_PARTS = 2


@dataclass(frozen=True, kw_only=True)
class MemoryBudget:
    """Whether a strategy fits into the memory of the fullest GPU.

    Attributes:
        fit_probability: probability that it fits with the headroom.
        changes: ways to make it fit with the fewest dimensions changed, best for each node first;
            empty if it fits, or if changing three dimensions is not enough.
        sentence: where its memory goes, whether it fits, and the first of the changes.
    """

    fit_probability: float
    changes: list[LayoutChange]
    sentence: str

    @property
    def fits(self) -> bool:
        return self.fit_probability >= LIKELY_TO_FIT


def memory_budget(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    headroom_gib: float = 0.0,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> MemoryBudget:
    """Return whether a strategy fits, and what would make it fit.

    Args:
        headroom_gib: memory that must stay free.
    """
    machine = calibration.machine
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    fits = float(
        calibration.fit_probability(Columns.of(transformer, lattice), headroom_gib=headroom_gib)[0]
    )
    question = WhatIf(
        start=strategy,
        calibration=calibration,
        transformer=transformer,
        objective="tokens_per_node_hour",
        headroom_gib=headroom_gib,
        program=program,
        other_batch=True,
    )
    changes = [] if fits >= LIKELY_TO_FIT else question.smallest()[:SHOWN]
    parts = {name: float(part[0]) for name, part in forecast.memory_parts_gib.items()}
    most = sorted(parts, key=lambda name: -parts[name])[:SHOWN_PARTS]
    of = " and ".join(f"{gibibytes(parts[name])} {MEMORY_WORDS[name]}" for name in most)
    verdict = f"it fits with a probability of {percent(fits)}" if fits < SURE else "it fits"
    if fits < 1.0 - SURE:
        verdict = "it does not fit"
    sentence = (
        f"It needs {gibibytes(float(forecast.memory_gib[0]))} of {machine.memory_gib:.3g} "
        f"({calibration.parameters.usable_gib(machine):.3g} usable), mostly {of}: {verdict}"
    )
    return MemoryBudget(
        fit_probability=fits,
        changes=changes,
        sentence=f"{sentence}. {changes[0].sentence}" if changes else sentence,
    )
