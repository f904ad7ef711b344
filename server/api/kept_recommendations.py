"""What campaigns recommend, worked out once for all who ask."""

from __future__ import annotations

from autotune.recommendation.standing import standing
from autotune.resolution import strategy_of
from autotune.schemas import Ranked, Recommendation, SpaceStanding
from evaluators.artefacts import Launch, artefact_names, launch_script, trainer_offers
from evaluators.cluster import profile_from_dict
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.kept_by_trials import KeptByTrials
from server.api.kept_campaigns import KeptCampaigns
from server.figures.source import FigureSource
from server.runner.worth import proposer_of, trial_cost
from server.store import NotFound, Store
from server.store.outcomes import STANDING

RECOMMENDATIONS = 200


class KeptRecommendations:
    """A recommendation is kept until more happens in its campaign than the progress of a trial."""

    def __init__(self, campaigns: KeptCampaigns, store: Store) -> None:
        self._campaigns = campaigns
        self._store = store
        self._alone: KeptByTrials[Recommendation | None] = KeptByTrials(campaigns, RECOMMENDATIONS)
        self._whole: KeptByTrials[Recommendation | None] = KeptByTrials(campaigns, RECOMMENDATIONS)

    def of(self, campaign_id: int, event: int) -> Recommendation | None:
        """Return what follows from all trials of a campaign after an event, its last, and how it
        stands in its space.

        None while no trial has succeeded; raises NotFound where there is no such campaign.
        """
        return self._whole.of(
            campaign_id, event, lambda source: self._stood(source, campaign_id, event)
        )

    def without_standing(self, campaign_id: int, event: int) -> Recommendation | None:
        """Return the same but for how it stands in its space, which costs a fit."""
        return self._alone.of(campaign_id, event, _launched)

    def existing(
        self, campaign_id: int, event: int, *, with_standing: bool = False
    ) -> Recommendation:
        """Return the recommendation; raises NotFound where there is none, and says why."""
        found = self.of if with_standing else self.without_standing
        recommendation = found(campaign_id, event)
        if recommendation is not None:
            return recommendation
        reason = f"campaign {campaign_id} has no recommendation yet: no trial has succeeded"
        if self._campaigns.campaign(campaign_id, event).request.study is not None:
            reason = (
                f"campaign {campaign_id} is a scaling study, which measures what it was given and "
                "recommends nothing: its figure `scaling` says what it found"
            )
        raise NotFound("recommendation", campaign_id, reason=reason)

    def _stood(self, source: FigureSource, campaign_id: int, event: int) -> Recommendation | None:
        recommendation = self.without_standing(campaign_id, event)
        if recommendation is None:
            return None
        told = STANDING.of(
            self._store, campaign_id, source.trials, lambda: _standing(recommendation, source)
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


def launch_of(source: FigureSource, ranked: Ranked) -> Launch:
    """Return the launch of a strategy, with the cluster's profile as the campaign keeps it."""
    campaign, kept = source.campaign, source.belief.profile
    return Launch(
        transformer=source.belief.transformer,
        machine=source.belief.machine,
        strategy=strategy_of(ranked.strategy),
        name=campaign.name,
        evaluator=campaign.request.evaluator,
        profile=None if kept is None else profile_from_dict(dict(kept), source="campaign"),
    )


def _launched(source: FigureSource) -> Recommendation | None:
    """Return the recommendation with the names of its launch files, what the first of them needs,
    and the trainers that it can be launched with."""
    recommendation = source.recommendation
    if recommendation is None:
        return None
    launch = launch_of(source, recommendation.best)
    names = sorted(artefact_names(launch))
    script = launch_script(launch, names)
    offers = trainer_offers(launch)
    return recommendation.model_copy(
        update={"artefacts": names, "launch": script, "trainers": offers}
    )
