"""Runners: each writes a row at intervals while it works, with the campaigns that it takes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, false, insert, select, update
from sqlalchemy.orm import Session

from server.store.campaigns import WORKED_ON
from server.store.columns import database_seconds
from server.store.leases import is_gone
from server.store.tables import CampaignRow, RunnerRow

FORGOTTEN_AFTER_S = 3600
"""A runner that has been silent for so long is no longer listed."""

SILENT_AFTER_S = 60
"""A runner that has been silent for so long may have died. It is no longer listed if another one
has started on its host since: a restarted container has the same host name and other process
ids."""


@dataclass(frozen=True, kw_only=True)
class CampaignKind:
    """The properties of a campaign that decide which runners take it."""

    evaluator: str
    owner: str | None
    own_runner: bool

    def condition(self) -> ColumnElement[bool]:
        """Return the condition on rows of campaigns of this kind."""
        return and_(
            CampaignRow.evaluator == self.evaluator,
            CampaignRow.owner.is_not_distinct_from(self.owner),
            CampaignRow.own_runner == self.own_runner,
        )


@dataclass(frozen=True, kw_only=True)
class RunnerOffer:
    """The campaigns that a runner takes.

    Attributes:
        user: the only user whose campaigns it takes; None for all campaigns that do not require a
            runner of their owner.
    """

    evaluators: Collection[str]
    user: str | None = None

    def takes(self, kind: CampaignKind) -> bool:
        """Return whether the runner takes campaigns of a kind."""
        theirs = kind.owner == self.user if self.user else not kind.own_runner
        return kind.evaluator in self.evaluators and theirs

    def condition(self) -> ColumnElement[bool]:
        """Return the condition on rows of the campaigns that it takes."""
        theirs = CampaignRow.owner == self.user if self.user else CampaignRow.own_runner == false()
        return and_(CampaignRow.evaluator.in_(self.evaluators), theirs)

    def resting(self) -> ColumnElement[bool]:
        """Return the condition on rows of those that are not worked on."""
        return and_(self.condition(), CampaignRow.state.not_in(WORKED_ON))


@dataclass(frozen=True, kw_only=True)
class KnownRunner:
    """A runner at its last heartbeat.

    Attributes:
        silent_s: seconds since then, by the database's clock.
        campaigns: ids of the campaigns that it holds.
        figures: its metrics, as `server.runner.figures` counts them.
    """

    owner: str
    version: str
    started_at: datetime
    silent_s: float
    campaigns: Sequence[int]
    figures: Sequence[dict[str, Any]]

    @property
    def works(self) -> bool:
        return self.silent_s < SILENT_AFTER_S

    @property
    def host(self) -> str:
        return _host(self.owner)

    @property
    def pid(self) -> int:
        return int(self.owner.rsplit("/", 2)[1])


@dataclass(frozen=True, kw_only=True)
class LivingRunner:
    """A runner with a recent heartbeat.

    Attributes:
        full: it works on as many campaigns as it may.
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
    """Write a runner's heartbeat, with what it takes and its metrics."""
    noted = {
        "seen_at": database_seconds(),
        "evaluators": sorted(offer.evaluators),
        "only_for": offer.user,
        "full": full,
        "figures": figures,
    }
    known = update(RunnerRow).where(RunnerRow.owner == owner).values(**noted)
    if session.execute(known.returning(RunnerRow.owner)).first() is not None:
        return
    forgotten = RunnerRow.seen_at < database_seconds() - FORGOTTEN_AFTER_S
    session.execute(delete(RunnerRow).where(forgotten))
    session.execute(
        insert(RunnerRow).values(owner=owner, version=version, started_at=started_at, **noted)
    )


def forget_runner(session: Session, owner: str) -> None:
    """Delete the row of a runner that ends."""
    session.execute(delete(RunnerRow).where(RunnerRow.owner == owner))


def _follows(one: RunnerRow, other: RunnerRow) -> bool:
    """Return whether one started after the other's last heartbeat."""
    return one.owner != other.owner and one.started_at.timestamp() > other.seen_at


def _host(owner: str) -> str:
    return owner.rsplit("/", 3)[0]


def known_runners(session: Session) -> list[KnownRunner]:
    """Return the runners, oldest first, without those that have died, as far as that is known, or
    were silent for long."""
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
    """Return the runners with a heartbeat within `silent_s`, oldest first, without those that have
    certainly died."""
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
