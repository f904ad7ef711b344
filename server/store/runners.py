"""Runners: the campaigns that they take, how they share them, and why a campaign waits for one.

Each runner writes a row at intervals while it works.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from sqlalchemy import (
    ColumnElement,
    and_,
    case,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session

from autotune.schemas.choices import CampaignState
from server.campaign.scheduling import WAITS, while_confirming
from server.store.campaigns import WORKED_ON
from server.store.leases import has_work, is_free, is_gone
from server.store.store import Store, announce
from server.store.tables import CampaignRow, RunnerRow, database_seconds

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

    @classmethod
    def of(cls, row: Any) -> CampaignKind:
        """Return the kind of a row with the columns of KIND."""
        return cls(evaluator=row.evaluator, owner=row.owner, own_runner=row.own_runner)

    def condition(self) -> ColumnElement[bool]:
        """Return the condition on rows of campaigns of this kind."""
        return and_(
            CampaignRow.evaluator == self.evaluator,
            CampaignRow.owner.is_not_distinct_from(self.owner),
            CampaignRow.own_runner == self.own_runner,
        )


KIND = (CampaignRow.evaluator, CampaignRow.owner, CampaignRow.own_runner)


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
        offer: the campaigns that it takes.
        full: it works on as many as it may.
        campaigns: ids of the campaigns that it holds.
        figures: its metrics, as `server.runner.figures` counts them.
    """

    owner: str
    version: str
    started_at: datetime
    silent_s: float
    offer: RunnerOffer
    full: bool
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
            offer=RunnerOffer(evaluators=row.evaluators, user=row.only_for),
            full=row.full,
            campaigns=held.get(row.owner, []),
            figures=row.figures,
        )
        for row, silent in rows
        if not is_gone(row.owner)
        and (silent < SILENT_AFTER_S or not _follows(newest[_host(row.owner)], row))
    ]


def living_runners(session: Session, *, silent_s: float) -> list[KnownRunner]:
    """Return the known runners with a heartbeat within `silent_s`, oldest first."""
    return [each for each in known_runners(session) if each.silent_s <= silent_s]


@dataclass(frozen=True, kw_only=True)
class OpenCampaigns:
    """The number of campaigns of one kind that are worked on or wait for a runner.

    Attributes:
        holder: the owner of their leases; None if they are free.
    """

    kind: CampaignKind
    holder: str | None
    count: int


@dataclass(frozen=True, kw_only=True)
class Portion:
    """A runner's share of the campaigns that the same runners take.

    Attributes:
        more: how many it may claim; negative if it holds too many.
    """

    kinds: Sequence[CampaignKind]
    more: int

    def condition(self) -> ColumnElement[bool]:
        """Return the condition on rows of these campaigns."""
        return or_(*(kind.condition() for kind in self.kinds))


def open_campaigns(session: Session) -> list[OpenCampaigns]:
    """Return the numbers of campaigns with work to do, by kind and holder."""
    holder = case((is_free(), None), else_=CampaignRow.lease_owner).label("holder")
    worked_on = select(*KIND, holder).where(CampaignRow.state.in_(WORKED_ON)).subquery()
    counts = select(*worked_on.c, func.count().label("number")).group_by(*worked_on.c)
    return [
        OpenCampaigns(kind=CampaignKind.of(row), holder=row.holder, count=row.number)
        for row in session.execute(counts)
    ]


def any_in_allocation(session: Session) -> bool:
    """Return whether any campaign with work to do runs its trials as steps of an allocation."""
    mode = CampaignRow.request[("slurm", "mode")].as_string()
    query = select(CampaignRow.id).where(
        has_work(), CampaignRow.evaluator == "slurm", mode == "pilot"
    )
    return session.scalar(query.limit(1)) is not None


def portions(
    campaigns: Iterable[OpenCampaigns], runners: Sequence[KnownRunner], *, me: str
) -> list[Portion]:
    """Return the shares of `me`, one for each set of runners that it belongs to.

    Full runners keep what they hold, and the others share the rest evenly.
    """
    by_takers: dict[frozenset[str], list[OpenCampaigns]] = {}
    for some in campaigns:
        takers = frozenset(each.owner for each in runners if each.offer.takes(some.kind))
        if me in takers:
            by_takers.setdefault(takers, []).append(some)
    full = {each.owner for each in runners if each.full} - {me}
    found: list[Portion] = []
    for takers, counted in by_takers.items():
        shared = sum(some.count for some in counted if some.holder not in full)
        mine = sum(some.count for some in counted if some.holder == me)
        share = ceil(shared / len(takers - full))
        kinds = list(dict.fromkeys(some.kind for some in counted))
        found.append(Portion(kinds=kinds, more=share - mine))
    return found


SAYING_WHY = (CampaignState.QUEUED, CampaignState.RUNNING)
"""In these states the reason is only what the campaign waits for; while it confirms, the reason
also says why its search ended."""


def reason_to_wait(kind: CampaignKind, runners: Sequence[KnownRunner]) -> str:
    """Return why no runner works on campaigns of a kind; empty if one is about to."""
    takers = [each for each in runners if each.offer.takes(kind)]
    if any(not each.full for each in takers):
        return ""
    if takers:
        return (
            "waits for room: "
            + ("the runner that takes it works" if len(takers) == 1 else "all runners work")
            + " on as many campaigns as may be at the same time (AUTOTUNE_MOST_CAMPAIGNS)"
        )
    if kind.own_runner:
        return (
            f"waits for a runner of {kind.owner or 'its owner'} that takes {kind.evaluator} "
            "trials, and none runs (autotune runner --as-me)"
        )
    if not runners:
        return "waits for a runner, and none runs (autotune runner)"
    return f"waits for a runner that takes {kind.evaluator} trials, and none that runs does"


def note_waiting(store: Store, *, silent_s: float) -> None:
    """Update the reasons of waiting campaigns; whoever claims one removes it.

    Args:
        silent_s: seconds without a heartbeat after which a runner counts as stopped.
    """
    free = is_free() & CampaignRow.state.in_((*SAYING_WHY, CampaignState.CONFIRMING))
    columns = (CampaignRow.id, CampaignRow.state, CampaignRow.reason, *KIND)
    with store.session() as session:
        found = session.execute(select(*columns).where(free)).all()
        runners = living_runners(session, silent_s=silent_s) if found else []
    changed: dict[int, str] = {}
    for row in found:
        reason = reason_to_wait(CampaignKind.of(row), runners)
        if row.state == CampaignState.CONFIRMING and reason:
            reason = while_confirming(row.reason, reason)
        if reason not in {"", row.reason}:
            changed[row.id] = reason
    if not changed:
        return
    with store.transaction() as session:
        for campaign_id, reason in changed.items():
            waiting_row = update(CampaignRow).where(CampaignRow.id == campaign_id, free)
            if session.execute(
                waiting_row.values(reason=reason)
                .returning(CampaignRow.id)
                .execution_options(synchronize_session=False)
            ).first():
                announce(session, "campaign", campaign_id=campaign_id)


def forget_waiting(session: Session, campaign_ids: Sequence[int]) -> None:
    """Remove the reasons to wait of campaigns that a runner has claimed."""
    waiting = update(CampaignRow).where(
        CampaignRow.id.in_(campaign_ids),
        CampaignRow.state.in_(SAYING_WHY),
        CampaignRow.reason != "",
    )
    cleared = waiting.values(reason="").returning(CampaignRow.id)
    freed = list(session.scalars(cleared.execution_options(synchronize_session=False)))
    confirming = select(CampaignRow).where(
        CampaignRow.id.in_(campaign_ids),
        CampaignRow.state == CampaignState.CONFIRMING,
        CampaignRow.reason.contains(WAITS),
    )
    for row in session.scalars(confirming):
        row.reason = while_confirming(row.reason, "")
        freed.append(row.id)
    for campaign_id in freed:
        announce(session, "campaign", campaign_id=campaign_id)
