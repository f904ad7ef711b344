"""What lists sort and search by, kept for each campaign in a row of its own.

A recommendation follows from many trials, and no database works it out: it is written down here
once for each change of a campaign, told by the campaign's last event.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import structlog
from sqlalchemy import delete, func, insert, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from autotune.campaign_outcome import outcome_of_campaign
from autotune.resolution import strategy_of
from autotune.schemas import Campaign
from server.store.campaigns import campaigns_of
from server.store.failures import cause
from server.store.outcomes import refresh_best
from server.store.store import Store
from server.store.tables import CampaignRow, EventRow, ListingRow

AT_ONCE = 200
"""Campaigns that are read at the same time, six kilobytes each and their trials."""
LAST_EVENT = func.coalesce(
    select(func.max(EventRow.id)).where(EventRow.campaign_id == CampaignRow.id).scalar_subquery(), 0
)
"""Of a campaign: what was read of it stands until that grows."""
log = structlog.get_logger(__name__)


class Listings:
    """Keeps the listings of one database; any thread may ask, and one at a time writes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refreshing = threading.Lock()

    def refresh(self) -> None:
        """Write the listings of campaigns that have changed; where that cannot be, the old ones
        stand, and lists are sorted by these."""
        try:
            with self._refreshing:
                while self._refresh_some():
                    pass
        except DBAPIError as error:  # also where a campaign was deleted meanwhile
            log.warning("listings_not_written", error=cause(error))

    def _refresh_some(self) -> bool:
        """Write some listings; return whether there were any to be written."""
        with self._store.session() as session:
            events = _outdated(session)
        if events:
            refresh_best(self._store, events)
            with self._store.session() as session:
                rows = _listings(session, events)
            with self._store.transaction() as session:
                session.execute(delete(ListingRow).where(ListingRow.campaign_id.in_(events)))
                there = select(CampaignRow.id).where(CampaignRow.id.in_(events))
                ids = set(session.scalars(there.with_for_update(read=True, key_share=True)))
                kept = [row for row in rows if row["campaign_id"] in ids]
                if kept:
                    session.execute(insert(ListingRow), kept)
        return bool(events)


def _outdated(session: Session) -> dict[int, int]:
    """Return campaigns whose listing is missing or older than their last event, with that."""
    query = (
        select(CampaignRow.id, LAST_EVENT)
        .outerjoin(ListingRow, ListingRow.campaign_id == CampaignRow.id)
        .where(or_(ListingRow.campaign_id.is_(None), ListingRow.event != LAST_EVENT))
        .limit(AT_ONCE)
    )
    return dict(session.execute(query).all())


def _listings(session: Session, events: dict[int, int]) -> list[dict[str, Any]]:
    rows = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(events))).all()
    return [
        listing_of(campaign) | {"event": events[campaign.id]}
        for campaign in campaigns_of(session, rows)
    ]


def listing_of(campaign: Campaign) -> dict[str, Any]:
    """Return the columns of a campaign's listing but for its event."""
    figures = {
        "campaign_id": campaign.id,
        "nodes": campaign.request.nodes,
        "best_objective": campaign.best_objective,
        "best_mfu": campaign.best_mfu,
        "trials": campaign.trials,
        "failures": campaign.failures,
        "node_hours": campaign.node_hours,
    }
    words = {
        "name": campaign.name,
        "outcome": outcome_of_campaign(campaign),
        "model": campaign.model.name,
        "machine": campaign.machine.name,
        "evaluator": campaign.request.evaluator,
        "best_strategy": strategy_words(campaign),
        "owner": campaign.owner or "",
    }
    simulated = "simulated" if campaign.simulated else "real trials"
    told: Sequence[str] = (f"#{campaign.id}", simulated, campaign.reason, *words.values())
    folded = {name: text.casefold() or None for name, text in words.items()}
    return figures | folded | {"text": " ".join(told).casefold()}


def strategy_words(campaign: Campaign) -> str:
    """Return the recommended layout in one line; empty where there is none."""
    return strategy_of(campaign.best_strategy).short() if campaign.best_strategy else ""
