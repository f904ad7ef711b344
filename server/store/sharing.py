"""How runners share campaigns: evenly, among all runners that take them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from sqlalchemy import ColumnElement, case, func, or_, select
from sqlalchemy.orm import Session

from server.store.campaigns import WORKED_ON
from server.store.leases import has_work, is_free
from server.store.runners import CampaignKind, LivingRunner
from server.store.tables import CampaignRow


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
    kind = (CampaignRow.evaluator, CampaignRow.owner, CampaignRow.own_runner)
    worked_on = select(*kind, holder).where(CampaignRow.state.in_(WORKED_ON)).subquery()
    counts = select(*worked_on.c, func.count().label("count")).group_by(*worked_on.c)
    found: list[OpenCampaigns] = []
    for row in session.execute(counts).mappings():
        kind_of = CampaignKind(
            evaluator=row["evaluator"], owner=row["owner"], own_runner=row["own_runner"]
        )
        found.append(OpenCampaigns(kind=kind_of, holder=row["holder"], count=row["count"]))
    return found


def any_in_allocation(session: Session) -> bool:
    """Return whether any campaign with work to do runs its trials as steps of an allocation."""
    mode = CampaignRow.request[("slurm", "mode")].as_string()
    query = select(CampaignRow.id).where(
        has_work(), CampaignRow.evaluator == "slurm", mode == "pilot"
    )
    return session.scalar(query.limit(1)) is not None


def portions(
    campaigns: Iterable[OpenCampaigns], runners: Sequence[LivingRunner], *, me: str
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
