"""The stored best of campaigns, kept up to date."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session

from autotune.schemas.choices import TrialState
from autotune.search import ended_of
from server.campaign.best import BestSoFar, has_stand_ins
from server.campaign.start import belief_of_campaign, versions_of
from server.store.campaigns import Tally, campaign_of, campaign_row
from server.store.errors import NotFound
from server.store.history import earlier_observations
from server.store.outcomes import BEST, VERSION
from server.store.store import Store
from server.store.tables import CampaignRow, OutcomeRow, TrialRow
from server.store.trials import all_trials


def refresh_best(store: Store, campaign_ids: Collection[int]) -> None:
    """Store the best of these campaigns where it is missing or outdated: after an upgrade or a
    crash. Projected layouts need a fit of the cost model, during which no connection is held."""
    with store.session() as session:
        outdated = _with_outdated_best(session, campaign_ids)
    made: dict[int, tuple[BestSoFar, int]] = {}
    for campaign_id in outdated:
        with suppress(NotFound), store.session() as session:  # deleted meanwhile
            row = campaign_row(session, campaign_id)
            campaign, profile = campaign_of(row, Tally()), row.profile
            trials = all_trials(session, campaign_id)
            kept = earlier_observations(session, campaign_id)
        belief = None
        if has_stand_ins(campaign.screening):
            versions = versions_of(trials, kept=kept)
            belief = belief_of_campaign(campaign, versions=versions, profile=profile, kept=kept)
        best = BestSoFar.of(campaign, trials, belief=belief)
        made[campaign_id] = best, len(ended_of(trials))
    BEST.keep_all(store, made)


def _with_outdated_best(session: Session, campaign_ids: Collection[int]) -> list[int]:
    ended = (
        select(func.count())
        .where(TrialRow.campaign_id == CampaignRow.id, TrialRow.state != TrialState.PENDING)
        .scalar_subquery()
    )
    stored = and_(
        OutcomeRow.campaign_id == CampaignRow.id,
        OutcomeRow.part == BEST.name,
        OutcomeRow.version == VERSION,
    )
    query = select(CampaignRow.id).outerjoin(OutcomeRow, stored)
    outdated = ended != func.coalesce(OutcomeRow.ended, 0)
    return list(session.scalars(query.where(CampaignRow.id.in_(campaign_ids), outdated)))
