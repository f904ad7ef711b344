"""Campaigns as they stand after their last event, read once for all who ask."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.schemas import Campaign, Trial
from server.api.kept import Kept
from server.figures.source import FigureSource, SpaceBelief, outcome_key
from server.store import Store
from server.store.campaigns import get_campaign, profile_of
from server.store.events import last_event_of
from server.store.history import earlier_observations
from server.store.outcomes import refresh_leaders
from server.store.trials import all_trials

CAMPAIGNS = 500
SOURCES = 8
"""Campaigns whose trials are kept; they are the largest part of it."""


class KeptCampaigns:
    """What is read of a campaign is kept until something happens in it, and what is believed of its
    space, which costs most, until a trial says something else.

    No connection to the database is held while anything is worked out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._campaigns: Kept[Campaign] = Kept(CAMPAIGNS)
        self._sources: Kept[FigureSource] = Kept(SOURCES)
        self._beliefs: Kept[SpaceBelief] = Kept(SOURCES)
        self._by_outcome: Kept[SpaceBelief] = Kept(SOURCES)

    def last_event(self, campaign_id: int) -> int:
        """Return the id of a campaign's last event; raises NotFound."""
        with self._store.session() as session:
            return last_event_of(session, campaign_id)

    def campaign(self, campaign_id: int, event: int) -> Campaign:
        """Return a campaign as it stands after an event, its last; raises NotFound."""
        return self._campaigns.of(campaign_id, lambda: self._campaign(campaign_id), version=event)

    def source(self, campaign_id: int, event: int) -> FigureSource:
        """Return the same with its trials; raises NotFound."""
        return self._sources.of(
            campaign_id, lambda: self._source(campaign_id, event), version=event
        )

    def latest(self, campaign_id: int) -> FigureSource:
        """Return a campaign with its trials as they stand now; raises NotFound."""
        return self.source(campaign_id, self.last_event(campaign_id))

    def _campaign(self, campaign_id: int) -> Campaign:
        refresh_leaders(self._store, [campaign_id])
        with self._store.session() as session:
            return get_campaign(session, campaign_id)

    def _source(self, campaign_id: int, event: int) -> FigureSource:
        campaign = self.campaign(campaign_id, event)
        with self._store.session() as session:
            trials = all_trials(session, campaign_id)
        belief = self._by_outcome.of(
            campaign_id,
            lambda: self._belief(campaign, trials),
            version=outcome_key(campaign, trials),
        )
        return FigureSource(campaign=campaign, trials=trials, belief=belief)

    def _belief(self, campaign: Campaign, trials: Sequence[Trial]) -> SpaceBelief:
        with self._store.session() as session:
            request = campaign.request
            has_profile = request.slurm or request.ray or request.adapter
            profile = profile_of(session, campaign.id) if has_profile else None
            kept = earlier_observations(session, campaign.id) if campaign.started_from else []
        belief = SpaceBelief.of(campaign, trials, profile=profile, kept=kept)
        return self._beliefs.of(campaign.id, lambda: belief, version=belief.key)
