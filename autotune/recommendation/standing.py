"""How certainly a recommended layout is the best of its space, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.schemas.recommendations import SpaceStanding
from autotune.search import Outlook, Proposer, SearchTrial
from search_spaces.strategy import Strategy


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
    likely = f"{_probability(outlook.probability_best)} likely the best of its space"
    if outlook.expected_gain < 0.0005:
        return f"{likely}; searching on would gain nothing."
    return f"{likely}; searching on would gain about {100 * outlook.expected_gain:.1f} %."


def _probability(value: float) -> str:
    if value > 0.99:
        return "Over 99 %"
    return "Under 1 %" if value < 0.01 else f"{100 * value:.0f} %"
