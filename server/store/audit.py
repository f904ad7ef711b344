"""The audit log: every requested change with its user and response status."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from autotune.schemas.users import AuditEntry, AuditPage
from server.store import paging
from server.store.record import record_of
from server.store.tables import AuditRow

COMMAND = "command"
"""The address of changes that a command made in the database itself."""


def note_change(
    session: Session,
    *,
    user: str | None,
    address: str,
    action: str,
    status: int,
    campaign_id: int | None = None,
) -> None:
    """Record one requested change."""
    session.add(
        AuditRow(
            at=datetime.now(UTC),
            user=user,
            address=address[:200],
            action=action[:200],
            campaign_id=campaign_id,
            status=status,
        )
    )


def audit_page(
    session: Session,
    *,
    user: str | None = None,
    campaign_id: int | None = None,
    since: datetime | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> AuditPage:
    """Return changes, newest first; raises InvalidInput for an invalid cursor."""
    query = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit + 1)
    if user is not None:
        query = query.where(AuditRow.user == user)
    if campaign_id is not None:
        query = query.where(AuditRow.campaign_id == campaign_id)
    if since is not None:
        query = query.where(AuditRow.at >= since)
    if cursor is not None:
        query = query.where(AuditRow.id < paging.decode(cursor, parts=1)[0])
    rows = session.scalars(query).all()
    items = [record_of(AuditEntry, row) for row in rows[:limit]]
    more = len(rows) > limit
    return AuditPage(items=items, next=paging.encode([items[-1].id]) if more else None)


def changes_before(session: Session, before: datetime) -> int:
    """Return the number of older changes."""
    older = select(func.count()).select_from(AuditRow).where(AuditRow.at < before)
    return session.scalar(older) or 0


def forget_before(session: Session, before: datetime) -> None:
    """Delete older changes, in a writing session."""
    session.execute(delete(AuditRow).where(AuditRow.at < before))
