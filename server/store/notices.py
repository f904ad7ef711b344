"""Notices that are still to be sent, with their remaining recipients."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from server.store.campaigns import get_campaign
from server.store.tables import NoticeRow, UserRow

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
GIVEN_UP_AFTER = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class DueNotice:
    """A notice to send now.

    Attributes:
        key: identifies it to recipients if it is sent again.
        state, reason: of the campaign at the time of the notice.
        campaign: in its present state.
        left: remaining recipients, of `server.store.campaigns.RECIPIENTS`.
        owner_address: e-mail address of the campaign's owner; empty without one.
    """

    id: int
    key: str
    at: datetime
    state: CampaignState
    reason: str
    campaign: Campaign
    left: tuple[str, ...]
    attempts: int
    owner_address: str

    def is_given_up(self, now: datetime) -> bool:
        """Return whether a failed attempt was the last one."""
        return now - self.at >= GIVEN_UP_AFTER


def due_notices(session: Session, *, now: datetime, limit: int) -> list[DueNotice]:
    """Return the notices to send now, oldest first."""
    query = select(NoticeRow).where(NoticeRow.next_at <= now)
    rows = session.scalars(query.order_by(NoticeRow.next_at, NoticeRow.id).limit(limit))
    return [_due(session, row) for row in rows.all()]


def settle_notice(
    session: Session, notice: DueNotice, *, left: Collection[str], now: datetime
) -> None:
    """Store the remaining recipients for a later attempt; without any, delete the notice."""
    row = session.get(NoticeRow, notice.id)
    if row is None:
        return  # its campaign was deleted meanwhile
    if not left:
        session.delete(row)
        return
    row.left = list(left)
    row.attempts = notice.attempts + 1
    row.next_at = now + min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(notice.attempts, 20))


def waiting_notices(session: Session) -> int:
    """Return the number of notices with remaining recipients."""
    return session.scalar(select(func.count()).select_from(NoticeRow)) or 0


def forget_notices_before(session: Session, before: datetime) -> None:
    """Delete old notices that no service has sent."""
    session.execute(delete(NoticeRow).where(NoticeRow.at < before))


def address_of(session: Session, owner: str | None) -> str:
    """Return a user's address; empty without one, and for unknown or revoked users."""
    query = select(UserRow.email).where(UserRow.name == owner, UserRow.revoked_at.is_(None))
    return session.scalar(query) or ""


def _due(session: Session, row: NoticeRow) -> DueNotice:
    campaign = get_campaign(session, row.campaign_id)
    wanted = campaign.request.notify and campaign.owner is not None
    return DueNotice(
        id=row.id,
        key=row.key,
        at=row.at,
        state=CampaignState(row.state),
        reason=row.reason,
        campaign=campaign,
        left=tuple(row.left),
        attempts=row.attempts,
        owner_address=address_of(session, campaign.owner) if wanted else "",
    )
