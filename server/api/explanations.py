"""Why campaigns' best won, or why nothing ran: worked out once for all who ask."""

from __future__ import annotations

from contextlib import suppress

from autotune.explanation import explain
from autotune.schemas import Explanation
from autotune.search import search_trials
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.space import SearchSpace
from server.api.kept_by_trials import KeptByTrials
from server.api.kept_campaigns import KeptCampaigns
from server.figures.source import FigureSource
from server.store import NotFound, Store
from server.store.outcomes import EXPLANATION

EXPLANATIONS = 200


class Explanations:
    """An explanation is kept until more happens in its campaign than the progress of a trial, and
    rests on what is believed for the campaign's figures: that costs up to a second."""

    def __init__(self, campaigns: KeptCampaigns, store: Store) -> None:
        self._store = store
        self._kept: KeptByTrials[Explanation] = KeptByTrials(campaigns, EXPLANATIONS)

    def of(self, campaign_id: int, event: int) -> Explanation:
        """Return the explanation as a campaign stands after an event, its last; raises NotFound."""
        return self._kept.of(campaign_id, event, self._explained)

    def ready(self, campaign_id: int, event: int) -> Explanation | None:
        """Return what holds after an event where that takes no time; None where it does."""
        return self._kept.ready(campaign_id, event)

    def _explained(self, source: FigureSource) -> Explanation:
        campaign_id = source.campaign.id
        if source.campaign.request.study is not None:
            reason = f"campaign {campaign_id} is a scaling study: there is no best to be explained"
            raise NotFound("explanation", campaign_id, reason=reason)
        return EXPLANATION.of(self._store, campaign_id, source.trials, lambda: _explanation(source))


def _explanation(source: FigureSource) -> Explanation:
    space: SearchSpace | None = None
    with source.belief.lock:
        with suppress(InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
            space = source.belief.space
        calibration = source.belief.calibration
    trials = search_trials(source.ended)
    return explain(source.campaign, source.recommendation, trials, calibration, space=space)
