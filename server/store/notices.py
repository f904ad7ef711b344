"""Notices that are still to be sent: what became of a campaign, and who has not been told yet."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from autotune.schemas import Campaign, CampaignState
from server.store.campaigns import get_campaign
from server.store.tables import NoticeRow, UserRow

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(hours=1)
GIVEN_UP_AFTER = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class DueNotice:
    """What is to be told now.

    Attributes:
        key: the same whenever it is sent again.
        state, reason: what the campaign came to be; it may be another by now.
        campaign: as it stands now.
        left: who is still to be told, of `server.store.campaigns.TOLD`.
        owner_address: where its owner is to be told; empty: nowhere.
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
        """Return whether nothing more is tried."""
        return now - self.at >= GIVEN_UP_AFTER


def due_notices(session: Session, *, now: datetime, limit: int) -> list[DueNotice]:
    """Return what is to be told now, what has waited longest first."""
    query = select(NoticeRow).where(NoticeRow.next_at <= now)
    rows = session.scalars(query.order_by(NoticeRow.next_at, NoticeRow.id).limit(limit))
    return [_due(session, row) for row in rows.all()]


def settle_notice(
    session: Session, notice: DueNotice, *, left: Collection[str], now: datetime
) -> None:
    """Keep who is still to be told, to be tried again after a pause; with nobody left it goes."""
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
    """Return how many have not been sent to all."""
    return session.scalar(select(func.count()).select_from(NoticeRow)) or 0


def forget_notices_before(session: Session, before: datetime) -> None:
    """Forget what no service has sent: none runs, or none that is told where to."""
    session.execute(delete(NoticeRow).where(NoticeRow.at < before))


def address_of(session: Session, owner: str | None) -> str:
    """Return a user's address; empty where there is none, or no such user any more."""
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
