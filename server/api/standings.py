"""How campaigns' recommendations stand in their spaces: worked out once for all who ask."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.recommendation.standing import standing
from autotune.resolution import machine_of, strategy_of, transformer_of
from autotune.schemas import Campaign, Recommendation, SpaceStanding, Trial
from autotune.search import SearchTrial
from autotune.search.trial import merged
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.kept import Kept
from server.runner.scheduling import search_trials
from server.runner.start import SearchStart, space_of_campaign
from server.runner.worth import proposer_of, trial_cost
from server.store import Store
from server.store.campaigns import profile_of
from server.store.history import earlier_observations

KEPT = 200
"""Answers that are kept, the last asked for."""


class Standings:
    """The fit to all trials takes half a second, and many may look at one campaign.

    An answer is kept until a trial says something else of its strategy. No connection to the
    database is held while it is worked out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: Kept[SpaceStanding | None] = Kept(KEPT)

    def added_to(
        self, recommendation: Recommendation, campaign: Campaign, trials: Sequence[Trial]
    ) -> Recommendation:
        """Return the recommendation with its standing, as far as these trials tell."""
        known = tuple(trial for trial in merged(search_trials(trials)) if trial.state != "running")
        best = recommendation.best.strategy
        told = self._kept.of(
            campaign.id,
            lambda: self._standing(recommendation, campaign, trials, known),
            version=(campaign.created_at, best.model_dump_json(), known),
        )
        return recommendation.model_copy(update={"standing": told})

    def _standing(
        self,
        recommendation: Recommendation,
        campaign: Campaign,
        trials: Sequence[Trial],
        known: Sequence[SearchTrial],
    ) -> SpaceStanding | None:
        transformer, machine = transformer_of(campaign.model), machine_of(campaign.machine)
        with self._store.session() as session:
            profile = profile_of(session, campaign.id)
            kept = earlier_observations(session, campaign.id) if campaign.started_from else []
        try:
            space = space_of_campaign(campaign.request, transformer, machine, profile=profile)
        except (InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
            return None
        start = SearchStart(machine=machine, transformer=transformer, kept=kept)
        earlier = start.observations(start.versions(trials))
        cost = trial_cost(campaign, trials)
        proposer = proposer_of(campaign, space, earlier=earlier, cost=cost)
        return standing(strategy_of(recommendation.best.strategy), known, proposer)
