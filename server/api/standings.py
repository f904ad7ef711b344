"""How campaigns' recommendations stand in their spaces: worked out once for all who ask."""

from __future__ import annotations

from autotune.recommendation.standing import standing
from autotune.resolution import strategy_of
from autotune.schemas import Recommendation, SpaceStanding
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.kept import Kept
from server.figures.source import FigureSource
from server.runner.worth import proposer_of, trial_cost

KEPT = 200
"""Answers that are kept, the last asked for."""


class Standings:
    """The fit to all trials takes half a second, and many may look at one campaign.

    An answer is kept until a trial says something else of its strategy. No connection to the
    database is held while it is worked out.
    """

    def __init__(self) -> None:
        self._kept: Kept[SpaceStanding | None] = Kept(KEPT)

    def added_to(self, recommendation: Recommendation, source: FigureSource) -> Recommendation:
        """Return the recommendation with its standing, as far as the trials tell."""
        best = recommendation.best.strategy
        told = self._kept.of(
            source.campaign.id,
            lambda: _standing(recommendation, source),
            version=(best.model_dump_json(), source.belief.key),
        )
        return recommendation.model_copy(update={"standing": told})


def _standing(recommendation: Recommendation, source: FigureSource) -> SpaceStanding | None:
    campaign, belief = source.campaign, source.belief
    with belief.lock:
        try:
            space = belief.space
        except (InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
            return None
        cost = trial_cost(campaign, source.trials)
        proposer = proposer_of(campaign, space, belief=belief.of_campaign, cost=cost)
        return standing(strategy_of(recommendation.best.strategy), belief.known, proposer)
