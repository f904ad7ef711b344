"""What an owner's limits leave to be started, over all campaigns and runners of a database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.node_hours import node_hours_of
from server.store.tables import CampaignRow, TrialRow, UserRow


@dataclass(frozen=True, kw_only=True)
class OwnerRoom:
    """How many trials may start now.

    Attributes:
        trials: None where there is no limit.
        reason: why none may, in a sentence; empty where some may.
    """

    trials: int | None = None
    reason: str = ""


def room_of(
    session: Session, owner: str | None, *, simulated: bool, locked: bool = False
) -> OwnerRoom:
    """Return what an owner's limits leave; all where it is no user, or nobody.

    Args:
        simulated: such trials take no node-hours.
        locked: whoever asks so, too, waits until this transaction has ended. It has to be the first
            lock that a transaction takes.
    """
    if owner is None:
        return OwnerRoom()
    query = select(UserRow).where(UserRow.name == owner)
    user = session.scalars(query.with_for_update() if locked else query).one_or_none()
    if user is None:
        return OwnerRoom()
    most_h = user.node_hours_a_month
    if most_h is not None and not simulated:
        taken_h = node_hours_of(session, owner, datetime.now(UTC))
        if taken_h >= most_h:
            reason = (
                f"waits for the next month: {owner} may take {most_h:g} node-hours in one, and has "
                f"taken {taken_h:.1f} in this"
            )
            return OwnerRoom(trials=0, reason=reason)
    if user.most_trials is None:
        return OwnerRoom()
    pending = (
        select(func.count())
        .select_from(TrialRow)
        .join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
        .where(CampaignRow.owner == owner, TrialRow.state == "pending")
    )
    left = user.most_trials - (session.scalar(pending) or 0)
    if left > 0:
        return OwnerRoom(trials=left)
    reason = f"waits for another trial to end: {owner} may have {user.most_trials} at once"
    return OwnerRoom(trials=0, reason=reason)
