"""How certainly a recommended layout is the best of its space, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.schemas.recommendations import Neighbour, SpaceStanding
from autotune.search import Outlook, Proposer, SearchTrial
from search_spaces.strategy import Strategy

NEAR = 0.02
"""Share of the best rate that a layout may lack to be as good for most purposes."""

BROAD = 0.5
SHARP = 0.25
"""Shares of the neighbours within NEAR from which on, and up to which, the surroundings are so."""


def standing(
    best: Strategy, trials: Sequence[SearchTrial], proposer: Proposer
) -> SpaceStanding | None:
    """Return the standing of `best` in its space; None if it is outside the space or not
    measured."""
    outlook = proposer.outlook(trials, best=best)
    if outlook is None:
        return None
    nearby = proposer.neighbours(trials, best)
    near_best = sum(_is_near(each) for each in nearby)
    surroundings = _surroundings(near_best, of=len(nearby))
    return SpaceStanding(
        probability_best=outlook.probability_best,
        expected_gain=outlook.expected_gain,
        untried=outlook.untried,
        near_best=near_best,
        surroundings=surroundings,
        neighbours=nearby,
        sentence=_sentence(outlook, near_best, of=len(nearby), surroundings=surroundings),
    )


def _is_near(neighbour: Neighbour) -> bool:
    ratio = neighbour.relative_to_best
    return ratio is not None and ratio >= 1.0 - NEAR and neighbour.fit_probability >= LIKELY_TO_FIT


def _surroundings(near: int, *, of: int) -> Literal["sharp peak", "ridge", "broad basin"] | None:
    if not of:
        return None
    if near >= BROAD * of:
        return "broad basin"
    return "sharp peak" if near <= SHARP * of else "ridge"


def _sentence(outlook: Outlook, near: int, *, of: int, surroundings: str | None) -> str:
    sentence = f"Best of its space with a probability of {_probability(outlook.probability_best)}; "
    if outlook.expected_gain < 0.0005:
        sentence += "no further gain is expected"
    else:
        sentence += f"the expected gain left is {100 * outlook.expected_gain:.1f} %"
    if surroundings is not None:
        plural = "" if of == 1 else "s"
        within = f"within {100 * NEAR:.0f} %"
        sentence += f"; a {surroundings}: {near} of {of} neighbour{plural} {within}"
    return f"{sentence}."


def _probability(value: float) -> str:
    if value > 0.99:
        return "over 99 %"
    return "under 1 %" if value < 0.01 else f"{100 * value:.0f} %"
