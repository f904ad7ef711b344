"""Explain a campaign in which every trial failed, and propose changes to the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from autotune.calibration import Calibration
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from autotune.explanation.what_if import WhatIf
from autotune.schemas.choices import Objective
from autotune.schemas.explanations import FailureCause
from autotune.schemas.predictions import LayoutChange
from autotune.search import SearchTrial
from autotune.words.dimensions import gibibytes
from autotune.words.failures import cause_of
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

UNKNOWN = "an unknown cause"


def explain_failures(
    space: SearchSpace,
    calibration: Calibration,
    trials: Sequence[SearchTrial],
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
) -> FailureCause | None:
    """Return why no trial succeeded, with remedies, smallest change first, if memory was the cause;
    None if a trial succeeded, or none has ended.

    Args:
        calibration: including these trials.
        headroom_gib: memory that must stay free.
    """
    failed = [trial for trial in trials if trial.state == "failed"]
    if not failed or any(trial.state == "ok" for trial in trials):
        return None
    too_large = [_intended_strategy(trial) for trial in failed if trial.out_of_memory]
    causes = _causes(trial.cause or UNKNOWN for trial in failed if not trial.out_of_memory)
    need = _need(space, calibration, too_large)
    remedies: list[LayoutChange] = []
    if len(too_large) * 2 >= len(failed):
        remedies = remedies_of(
            space,
            calibration,
            objective=objective,
            headroom_gib=headroom_gib,
            tried=frozenset(_intended_strategy(trial).layout_key() for trial in trials),
        )
    sentence = _sentence(len(failed), causes, need, space.machine.memory_gib, remedies)
    return FailureCause(
        sentence=sentence,
        need_low_gib=need[0] if need else None,
        need_high_gib=need[-1] if need else None,
        suggestions=remedies,
    )


def _causes(messages: Iterable[str]) -> dict[str, int]:
    alike: dict[str, list[str]] = {}
    for message in messages:
        alike.setdefault(cause_of(message), []).append(message)
    kinds = sorted(alike.values(), key=len, reverse=True)
    return {messages[0]: len(messages) for messages in kinds}


def remedies_of(
    space: SearchSpace,
    calibration: Calibration,
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
    tried: frozenset[tuple[object, ...]] = frozenset(),
) -> list[LayoutChange]:
    """Return the smallest changes of the leanest layout of a space with which it probably fits.

    Args:
        tried: keys of layouts that are no remedy.
    """
    lattice = space.lattice()
    predicted = estimate(
        space.transformer, space.machine, lattice, parameters=calibration.parameters
    )
    leanest = lattice.strategy(int(np.argmin(predicted.memory_gib)))
    question = WhatIf.outside(
        space, calibration, leanest, objective=objective, headroom_gib=headroom_gib, tried=tried
    )
    return question.smallest()


def _intended_strategy(trial: SearchTrial) -> Strategy:
    return trial.strategy if trial.num_layers is None else trial.full


def _need(
    space: SearchSpace, calibration: Calibration, strategies: Sequence[Strategy]
) -> list[float]:
    if not strategies:
        return []
    lattice = Lattice.of(strategies, gpus_per_node=space.machine.gpus_per_node)
    needed = calibration.needed_gib(Columns.of(space.transformer, lattice))
    return sorted(needed.tolist())


def _sentence(
    trials: int,
    causes: Mapping[str, int],
    need: Sequence[float],
    whole: float,
    remedies: Sequence[LayoutChange],
) -> str:
    every = f"All {trials} trials" if trials > 1 else "The only trial"
    if not need and len(causes) == 1:
        same = " with the same error" if trials > 1 else ""
        return f"{every} failed{same}: {next(iter(causes))}."
    others = ", ".join(f"{count} with {cause}" for cause, count in causes.items())
    if not need:
        return f"{every} failed: {others}."
    low, high = gibibytes(need[0]).removesuffix(" GiB"), gibibytes(need[-1])
    span = high if low == high.removesuffix(" GiB") else f"{low} to {high}"
    memory = f"their layouts need {span} of each GPU's {whole:.3g}"
    head = (
        f"{every} failed: {others}, and {len(need)} out of memory: {memory}"
        if others
        else f"{every} ran out of memory: {memory}"
    )
    return f"{head}. {remedies[0].sentence}" if remedies else f"{head}; no similar layout fits."
