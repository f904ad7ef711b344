"""Why one strategy is faster than another: which parts of a step differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.dimension_words import COST_WORDS, capitalised, percent, told_apart
from autotune.explanation.parts import Origin, StrategyParts
from autotune.wording import listed
from search_spaces.strategy import Strategy

HARDLY = 0.01
"""Differences below this share of the best strategy's time are not mentioned."""

LOSSES = 2
SAVINGS = 1
"""Maximum number of longer and of shorter parts in a sentence."""

TWICE = 1.0
"""Excess over the best strategy's time above which a sentence gives the ratio and the strategy's
own largest parts, since differences then exceed 100 %."""

FORESEEN: tuple[Origin, ...] = ("projected", "predicted")


@dataclass(frozen=True, kw_only=True)
class PartsComparison:
    """One strategy compared with the best, for the same work.

    Attributes:
        strategy: the strategy compared.
        longer: its cost per token (time, node-hours or energy, by the objective) over that of the
            best, minus 1; negative if lower.
        differences: part -> predicted difference as a share of the best strategy's total; the sum
            is `longer`.
        sentence: the largest differences in words.
    """

    strategy: StrategyParts
    longer: float
    differences: Mapping[str, float]
    sentence: str


def compare(winner: StrategyParts, others: Sequence[StrategyParts]) -> list[PartsComparison]:
    """Compare each of the other strategies with the best."""
    among = [each.strategy for each in others]
    return [_against(winner, other, among) for other in others]


def _against(
    winner: StrategyParts, other: StrategyParts, among: Sequence[Strategy]
) -> PartsComparison:
    ratio, own, theirs = other.cost / winner.cost, winner.shares, other.shares
    differences = {name: ratio * theirs[name] - own[name] for name in own}
    predicted = any(each.time_origin in FORESEEN for each in (winner, other))
    apart = told_apart(other.strategy, winner.strategy, among=among)
    name = capitalised(apart or "the same strategy")
    return PartsComparison(
        strategy=other,
        longer=ratio - 1.0,
        differences=differences,
        sentence=_sentence(name, winner, other, ratio - 1.0, differences, predicted=predicted),
    )


def _sentence(
    name: str,
    winner: StrategyParts,
    other: StrategyParts,
    longer: float,
    differences: Mapping[str, float],
    *,
    predicted: bool,
) -> str:
    if other.role == "baseline":
        name = f"The baseline ({name})"
    tells = "is predicted to take" if predicted else "takes"
    if own := _own_dimensions(winner.strategy, other.strategy):
        return f"{_cost(name, tells, winner, longer)}; no formula explains why: {own}"
    if longer >= TWICE:
        most = max(differences, key=lambda part: differences[part])
        share = f"{percent(other.shares[most])} of its time is {other.words[most]}"
        return f"{_cost(name, tells, winner, longer)}: {share}"
    head = _cost(name, tells, winner, longer)
    order = sorted(differences, key=lambda part: -differences[part])
    losses = [part for part in order if differences[part] >= HARDLY][:LOSSES]
    savings = [part for part in reversed(order) if differences[part] <= -HARDLY][:SAVINGS]
    said = []
    if losses:
        lost = [f"{percent(differences[part])} to {other.words[part]}" for part in losses]
        said.append(f"loses {' and '.join(lost)}")
    if savings:
        saved = [f"{percent(differences[part])} in {other.words[part]}" for part in savings]
        said.append(f"saves {' and '.join(saved)}")
    return f"{head}: it {' and '.join(said)}" if said else head


def _cost(name: str, tells: str, winner: StrategyParts, longer: float) -> str:
    """Return the difference in cost in words."""
    same, more, less = COST_WORDS[winner.objective]
    if longer >= TWICE:
        return f"{name} {tells} {1.0 + longer:.2g} times {same}"
    if abs(longer) < HARDLY:
        return f"{name} {tells} {same} as the best"
    return f"{name} {tells} {percent(longer)} {more if longer > 0.0 else less}"


def _own_dimensions(winner: Strategy, other: Strategy) -> str:
    """Return the trainer-defined dimensions that differ, in words. Their effect is learned from
    trials and belongs to no part of a step."""
    own = dict(winner.settings)
    names = [name for name, value in other.settings if own.get(name) != value]
    verb = "is the trainer's own" if len(names) == 1 else "are the trainer's own"
    return f"{listed(names)} {verb}" if names else ""
