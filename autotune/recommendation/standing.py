"""How certainly a recommended layout is the best of its space, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.schemas.recommendations import SpaceStanding
from autotune.search import Outlook, Proposer, SearchTrial
from autotune.words.dimensions import percent
from search_spaces.strategy import Strategy

HARDLY = 0.0005
"""Expected relative gain below which more trials gain nothing."""


def standing(
    best: Strategy, trials: Sequence[SearchTrial], proposer: Proposer
) -> SpaceStanding | None:
    """Return the standing of `best` in its space; None if it is outside the space or not
    measured."""
    outlook = proposer.outlook(trials, best=best)
    if outlook is None:
        return None
    return SpaceStanding(
        probability_best=outlook.probability_best,
        expected_gain=outlook.expected_gain,
        untried=outlook.untried,
        neighbours=proposer.neighbours(trials, best),
        sentence=_sentence(outlook),
    )


def _sentence(outlook: Outlook) -> str:
    probability = _probability(outlook.probability_best)
    likely = "Probably" if outlook.probability_best >= 0.5 else "Probably not yet"
    gain = f"may gain about {percent(outlook.expected_gain)}"
    more = gain if outlook.expected_gain >= HARDLY else "would gain nothing"
    return f"{likely} the best of its space ({probability}). More trials {more}."


def _probability(value: float) -> str:
    if value > 0.99:
        return "over 99 %"
    return "under 1 %" if value < 0.01 else f"{100 * value:.0f} %"
