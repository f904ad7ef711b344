"""Leases: each campaign is worked on by at most one runner."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from sqlalchemy import ColumnElement, and_, exists, or_, select, true, tuple_, update
from sqlalchemy.orm import Session

from server.store.campaigns import WORKED_ON
from server.store.errors import LeaseLost
from server.store.tables import CampaignRow, TrialRow, database_seconds


@dataclass(frozen=True, kw_only=True)
class Lease:
    """The right to work on one campaign. Every claim increases `epoch`, so that writes of a
    previous holder are refused."""

    campaign_id: int
    owner: str
    epoch: int
    seconds: float


def this_owner() -> str:
    process = psutil.Process()
    return f"{this_place()}/{process.pid}/{process.create_time():.2f}"


def this_place() -> str:
    namespace = Path("/proc/self/ns/pid")
    inode = os.stat(namespace).st_ino if namespace.exists() else 0
    return f"{platform.node()}/{inode}"


def is_gone(owner: str) -> bool:
    """Return whether the process `owner` has certainly ended; False for other hosts."""
    place, pid, started = owner.rsplit("/", 2)
    if place != this_place():
        return False
    try:
        return f"{psutil.Process(int(pid)).create_time():.2f}" != started
    except psutil.NoSuchProcess:
        return True


def is_free() -> ColumnElement[bool]:
    return or_(CampaignRow.lease_owner.is_(None), CampaignRow.lease_until < database_seconds())


def has_work() -> ColumnElement[bool]:
    unfinished = exists().where(TrialRow.campaign_id == CampaignRow.id, TrialRow.state == "pending")
    return or_(CampaignRow.state.in_(WORKED_ON), unfinished)


def _is_claimable() -> ColumnElement[bool]:
    return and_(is_free(), has_work())


def any_claimable(session: Session, *, among: ColumnElement[bool]) -> bool:
    found = select(CampaignRow.id).where(_is_claimable(), among).limit(1)
    return session.scalar(found) is not None


def claim(
    session: Session,
    owner: str,
    *,
    seconds: float,
    limit: int,
    among: ColumnElement[bool] | None = None,
) -> list[Lease]:
    """Claim the oldest free campaigns with work to do, in one statement.

    A resting campaign has work to do until its trials have ended. Times are by the database's
    clock, so that the clocks of hosts need not agree.

    Args:
        among: condition on rows that may be claimed; None for all.
    """
    open_ids = (
        select(CampaignRow.id)
        .where(_is_claimable(), true() if among is None else among)
        .order_by(CampaignRow.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    statement = (
        update(CampaignRow)
        .where(CampaignRow.id.in_(open_ids))
        .values(
            lease_owner=owner,
            lease_epoch=CampaignRow.lease_epoch + 1,
            lease_until=database_seconds() + seconds,
        )
        .returning(CampaignRow.id, CampaignRow.lease_epoch)
        .execution_options(synchronize_session=False)
    )
    leases = [
        Lease(campaign_id=campaign_id, owner=owner, epoch=epoch, seconds=seconds)
        for campaign_id, epoch in session.execute(statement)
    ]
    return sorted(leases, key=lambda lease: lease.campaign_id)  # RETURNING has no order


def any_in_allocation(session: Session) -> bool:
    """Return whether any campaign with work to do runs its trials as steps of an allocation."""
    mode = CampaignRow.request[("slurm", "mode")].as_string()
    query = select(CampaignRow.id).where(
        has_work(), CampaignRow.evaluator == "slurm", mode == "pilot"
    )
    return session.scalar(query.limit(1)) is not None


def renew(session: Session, lease: Lease) -> CampaignRow:
    """Renew a lease; return the campaign's row, locked until the transaction ends.

    Raises:
        LeaseLost: another runner holds it now, or it was deleted.
    """
    if not renew_all(session, [lease]):
        raise LeaseLost(f"campaign {lease.campaign_id} is no longer held by {lease.owner}")
    return session.get_one(CampaignRow, lease.campaign_id, populate_existing=True)


def renew_all(session: Session, leases: Sequence[Lease]) -> set[int]:
    """Renew one runner's leases; return the ids of the campaigns that it still holds."""
    held = tuple_(CampaignRow.id, CampaignRow.lease_owner, CampaignRow.lease_epoch)
    of_leases = [(lease.campaign_id, lease.owner, lease.epoch) for lease in leases]
    longest_s = max((lease.seconds for lease in leases), default=0.0)
    statement = (
        update(CampaignRow)
        .where(held.in_(of_leases))
        .values(lease_until=database_seconds() + longest_s)
        .execution_options(synchronize_session=False)
        .returning(CampaignRow.id)
    )
    return set(session.scalars(statement))


def release(session: Session, lease: Lease) -> None:
    """Release the campaign, unless the lease was lost."""
    held = update(CampaignRow).where(
        CampaignRow.id == lease.campaign_id,
        CampaignRow.lease_owner == lease.owner,
        CampaignRow.lease_epoch == lease.epoch,
    )
    session.execute(held.values(lease_owner=None, lease_until=None))


def gone_owners(session: Session) -> list[str]:
    """Return the holders of campaigns that have certainly ended."""
    owners = session.scalars(
        select(CampaignRow.lease_owner).where(CampaignRow.lease_owner.is_not(None)).distinct()
    )
    return [owner for owner in owners if owner is not None and is_gone(owner)]


def free_the_gone(session: Session) -> int:
    """Release the campaigns of ended processes of this host; return the number of processes."""
    gone = gone_owners(session)
    if gone:
        released = update(CampaignRow).where(CampaignRow.lease_owner.in_(gone))
        session.execute(released.values(lease_owner=None, lease_until=None))
    return len(gone)
