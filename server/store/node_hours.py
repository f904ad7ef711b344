"""Node-hours by owner and month, including those of deleted campaigns."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.tables import CampaignRow, NodeHoursOfDeletedRow, TrialRow


def node_hours_of(session: Session, name: str, now: datetime) -> float:
    """Return the node-hours of an owner's campaigns in the calendar month of `now` (UTC), including
    deleted campaigns, without simulated trials."""
    begin = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    kept = (
        select(func.sum(TrialRow.node_hours))
        .join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
        .where(
            CampaignRow.owner == name,
            TrialRow.simulated.is_(False),
            TrialRow.finished_at >= begin,
        )
    )
    deleted = session.get(NodeHoursOfDeletedRow, (name, month_of(now)))
    return (session.scalar(kept) or 0.0) + (deleted.node_hours if deleted else 0.0)


def month_of(moment: datetime) -> str:
    """Return the month as it is stored: `2026-03`."""
    return f"{moment.astimezone(UTC):%Y-%m}"


def keep_node_hours(session: Session, campaign: CampaignRow) -> None:
    """Store the node-hours of a campaign by month before it is deleted."""
    if campaign.owner is None or campaign.simulated:
        return
    taken = select(TrialRow.finished_at, TrialRow.node_hours)
    taken = taken.where(TrialRow.campaign_id == campaign.id)
    months: dict[str, float] = {}
    for finished_at, node_hours in session.execute(taken):
        if finished_at is not None and node_hours is not None:
            month = month_of(finished_at)
            months[month] = months.get(month, 0.0) + node_hours
    for month, node_hours in months.items():
        row = session.get(NodeHoursOfDeletedRow, (campaign.owner, month))
        if row is None:
            row = NodeHoursOfDeletedRow(owner=campaign.owner, month=month, node_hours=0.0)
            session.add(row)
        row.node_hours += node_hours
