"""Runners as they are known to all: a row for each, written at intervals while it works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from server.store.columns import database_seconds
from server.store.leases import is_gone
from server.store.offers import RunnerOffer
from server.store.tables import CampaignRow, RunnerRow

FORGOTTEN_AFTER_S = 3600
"""A runner that has been silent for so long is told of no more."""

SILENT_AFTER_S = 60
"""One that has been silent for so long may have died. Where another has begun on its host since it
was last heard of, it is told of no more: a container that was killed and started again has its
host's name, and other process ids."""


@dataclass(frozen=True, kw_only=True)
class KnownRunner:
    """A runner as it last told of itself.

    Attributes:
        silent_s: since then, by the database's clock.
        campaigns: ids of those that it holds.
        figures: of `server.runner.figures`.
    """

    owner: str
    version: str
    started_at: datetime
    silent_s: float
    campaigns: Sequence[int]
    figures: Sequence[dict[str, Any]]

    @property
    def works(self) -> bool:
        """Whether it is known to."""
        return self.silent_s < SILENT_AFTER_S

    @property
    def host(self) -> str:
        return _host(self.owner)

    @property
    def pid(self) -> int:
        return int(self.owner.rsplit("/", 2)[1])


@dataclass(frozen=True, kw_only=True)
class LivingRunner:
    """A runner that works, as far as is known.

    Attributes:
        full: it brings as many campaigns forward as it may.
    """

    owner: str
    offer: RunnerOffer
    full: bool


def note_runner(
    session: Session,
    owner: str,
    *,
    version: str,
    started_at: datetime,
    offer: RunnerOffer,
    full: bool,
    figures: list[dict[str, Any]],
) -> None:
    """Write that a runner works now, what it takes, and what it has counted."""
    told = {
        "seen_at": database_seconds(),
        "evaluators": sorted(offer.evaluators),
        "only_for": offer.user,
        "full": full,
        "figures": figures,
    }
    known = update(RunnerRow).where(RunnerRow.owner == owner).values(**told)
    if session.execute(known.returning(RunnerRow.owner)).first() is not None:
        return
    forgotten = RunnerRow.seen_at < database_seconds() - FORGOTTEN_AFTER_S
    session.execute(delete(RunnerRow).where(forgotten))
    session.execute(
        insert(RunnerRow).values(owner=owner, version=version, started_at=started_at, **told)
    )


def forget_runner(session: Session, owner: str) -> None:
    """Take away the row of a runner that ends."""
    session.execute(delete(RunnerRow).where(RunnerRow.owner == owner))


def _follows(one: RunnerRow, other: RunnerRow) -> bool:
    """Return whether one began after the other was last heard of."""
    return one.owner != other.owner and one.started_at.timestamp() > other.seen_at


def _host(owner: str) -> str:
    return owner.rsplit("/", 3)[0]


def known_runners(session: Session) -> list[KnownRunner]:
    """Return the runners, the longest at work first; none that no longer lives, as far as that can
    be told, or was silent for long."""
    leases = select(CampaignRow.lease_owner, CampaignRow.id).where(
        CampaignRow.lease_owner.is_not(None), CampaignRow.lease_until >= database_seconds()
    )
    held: dict[str, list[int]] = {}
    for owner, campaign_id in session.execute(leases.order_by(CampaignRow.id)):
        held.setdefault(str(owner), []).append(campaign_id)
    silent_s = database_seconds() - RunnerRow.seen_at
    remembered = RunnerRow.seen_at >= database_seconds() - FORGOTTEN_AFTER_S
    query = select(RunnerRow, silent_s).where(remembered).order_by(RunnerRow.started_at)
    rows = session.execute(query).all()
    newest = {_host(row.owner): row for row, _ in rows}
    return [
        KnownRunner(
            owner=row.owner,
            version=row.version,
            started_at=row.started_at,
            silent_s=max(0.0, silent),
            campaigns=held.get(row.owner, []),
            figures=row.figures,
        )
        for row, silent in rows
        if not is_gone(row.owner)
        and (silent < SILENT_AFTER_S or not _follows(newest[_host(row.owner)], row))
    ]


def living_runners(session: Session, *, silent_s: float) -> list[LivingRunner]:
    """Return the runners that told of themselves within `silent_s`, the longest at work first; none
    that certainly no longer lives."""
    seen = RunnerRow.seen_at >= database_seconds() - silent_s
    rows = session.scalars(select(RunnerRow).where(seen).order_by(RunnerRow.started_at))
    return [
        LivingRunner(
            owner=row.owner,
            offer=RunnerOffer(evaluators=row.evaluators, user=row.only_for),
            full=row.full,
        )
        for row in rows
        if not is_gone(row.owner)
    ]
