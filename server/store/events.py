"""Events in order, each with its campaign or trial in its present state."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import bindparam, func, literal_column, select
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Event
from autotune.schemas.trials import Trial
from server.store.campaigns import campaigns_of
from server.store.errors import NotFound
from server.store.record import record_of, trial_of
from server.store.tables import CampaignRow, EventRow, TrialRow

LAST_EVENT = func.coalesce(
    select(func.max(EventRow.id)).where(EventRow.campaign_id == CampaignRow.id).scalar_subquery(), 0
)
"""The id of a campaign's last event, 0 without one.

Every change of a campaign or its trials has an event: what was read stays valid until it grows.
"""
_LAST_OF_CAMPAIGN = select(LAST_EVENT).where(CampaignRow.id == bindparam("campaign_id"))
"""Built once: it is queried for each response about a campaign."""


def last_event_id(session: Session) -> int:
    return session.scalar(select(func.coalesce(func.max(EventRow.id), 0))) or 0


def newest_events(session: Session, campaign_ids: Iterable[int]) -> dict[int, int]:
    query = select(CampaignRow.id, LAST_EVENT).where(CampaignRow.id.in_(list(campaign_ids)))
    return dict(session.execute(query).all())


def last_event_of(session: Session, campaign_id: int) -> int:
    """Return the id of a campaign's last event, 0 without one; raises NotFound."""
    found: int | None = session.scalar(_LAST_OF_CAMPAIGN, {"campaign_id": campaign_id})
    if found is None:
        raise NotFound("campaign", campaign_id)
    return found


def newest_since(session: Session, after_id: int) -> dict[int, int]:
    """Return the id of the last event of each campaign that has a later one."""
    # Grouped by an expression without an index: SQLite would read the whole index on campaigns.
    campaign_id = EventRow.campaign_id + literal_column("0")
    query = select(campaign_id, func.max(EventRow.id)).where(EventRow.id > after_id)
    rows = session.execute(query.group_by(campaign_id))
    return {row[0]: row[1] for row in rows}


def private_owners(session: Session, campaign_ids: Collection[int]) -> dict[int, str | None]:
    query = select(CampaignRow.id, CampaignRow.owner).where(CampaignRow.private.is_(True))
    rows = session.execute(query.where(CampaignRow.id.in_(campaign_ids)))
    return {row[0]: row[1] for row in rows}


def events_since(
    session: Session, after_id: int, campaign_id: int | None = None, limit: int = 200
) -> list[Event]:
    """Return events with a higher id, oldest first, each with its campaign or trial."""
    query = select(EventRow).where(EventRow.id > after_id).order_by(EventRow.id).limit(limit)
    if campaign_id is not None:
        query = query.where(EventRow.campaign_id == campaign_id)
    rows = session.scalars(query).all()
    ids = {row.campaign_id for row in rows if row.kind != "trial"}
    named = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(ids))).all() if ids else []
    campaigns = {campaign.id: campaign for campaign in campaigns_of(session, named)}
    trials = _trials_named(session, [row for row in rows if row.kind == "trial"])
    return [
        record_of(
            Event,
            row,
            campaign=campaigns.get(row.campaign_id) if row.kind != "trial" else None,
            trial=trials.get((row.campaign_id, row.trial_number)),
        )
        for row in rows
    ]


def _trials_named(
    session: Session, rows: Sequence[EventRow]
) -> dict[tuple[int, int | None], Trial]:
    trials: dict[tuple[int, int | None], Trial] = {}
    for campaign_id in {row.campaign_id for row in rows}:
        numbers = {row.trial_number for row in rows if row.campaign_id == campaign_id}
        query = select(TrialRow).where(
            TrialRow.campaign_id == campaign_id, TrialRow.number.in_(numbers)
        )
        trials |= {(row.campaign_id, row.number): trial_of(row) for row in session.scalars(query)}
    return trials
