"""Lists of campaigns: searched, sorted and paged by the database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from autotune.campaign_outcome import outcome_of_campaign
from autotune.schemas import (
    CampaignPage,
    CampaignState,
    ListedCampaign,
)
from search_spaces.errors import InvalidInput, closest
from server.cache import Cache
from server.campaign.best import ended_trials
from server.store import cursors
from server.store.campaigns import campaigns_with_best
from server.store.listings import LAST_EVENT, Listings
from server.store.outcomes import refresh_best
from server.store.store import Store
from server.store.tables import CampaignRow, ListingRow

CAMPAIGNS = 1000
"""Ten kilobytes each, and more for one that started from many others."""

POINTS = 32
"""Of a campaign's best figure so far."""

WORDS = re.compile(r'"([^"]+)"|([^\s"]+)')

NEWEST_FIRST = "-id"

SORTS: Mapping[str, InstrumentedAttribute[Any]] = {
    "id": CampaignRow.id,
    "name": ListingRow.name,
    "outcome": ListingRow.outcome,
    "model": ListingRow.model,
    "machine": ListingRow.machine,
    "nodes": ListingRow.nodes,
    "evaluator": ListingRow.evaluator,
    "best_strategy": ListingRow.best_strategy,
    "best_objective": ListingRow.best_objective,
    "best_mfu": ListingRow.best_mfu,
    "trials": ListingRow.trials,
    "failures": ListingRow.failures,
    "node_hours": ListingRow.node_hours,
    "created_at": CampaignRow.created_at,
    "owner": ListingRow.owner,
}


@dataclass(frozen=True, kw_only=True)
class CampaignOrder:
    """By what a list is sorted; of campaigns that are level the newest comes first, and those
    without the figure come last either way."""

    name: str
    falling: bool

    @property
    def column(self) -> InstrumentedAttribute[Any]:
        return SORTS[self.name]

    @classmethod
    def of(cls, sort: str) -> CampaignOrder:
        """Read a name of SORTS, with a leading `-` for falling order; raises InvalidInput."""
        name = sort.removeprefix("-")
        if name not in SORTS:
            near = closest(name, SORTS)
            reason = "not a field to sort campaigns by"
            reason += f"; meant {' or '.join(near)}?" if near else ""
            valid = ", ".join(SORTS) + "; with a leading - for descending order"
            raise InvalidInput("sort", sort, reason, valid=valid)
        return cls(name=name, falling=sort.startswith("-"))

    def sorted(self, query: Select[Any]) -> Select[Any]:
        order = self.column.desc() if self.falling else self.column.asc()
        if self.name == "id":
            return query.order_by(order)
        return query.order_by(self.column.is_(None), order, CampaignRow.id.desc())

    def after(self, value: Any, campaign_id: int) -> ColumnElement[bool]:
        """Return what holds of all that follow a campaign with this figure."""
        older = CampaignRow.id < campaign_id
        if self.name == "id":
            return older if self.falling else CampaignRow.id > campaign_id
        if value is None:
            return and_(self.column.is_(None), older)
        beyond = self.column < value if self.falling else self.column > value
        return or_(beyond, and_(self.column == value, older), self.column.is_(None))


class CampaignList:
    """The campaigns of one database, each cached until its next event. Safe for threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._listings = Listings(store)
        self._cache: Cache[ListedCampaign] = Cache(CAMPAIGNS)

    def refresh(self) -> None:
        """Write down what lists sort and search by, so that the first need not wait for it."""
        self._listings.refresh()

    def page(
        self,
        *,
        state: CampaignState | None = None,
        owner: str | None = None,
        search: str = "",
        sort: str = NEWEST_FIRST,
        cursor: str | None = None,
        limit: int = 50,
        reader: str | None = None,
    ) -> CampaignPage:
        """Return a page of campaigns, newest first where nothing else is asked.

        Those without the figure that is sorted by come last either way.

        Args:
            owner: whose campaigns alone; None for all.
            search: words that each stand somewhere in what a list shows, in any case; several
                in quotation marks stand there so: `frontier "tp 8"`.
            sort: a name of SORTS, falling where it begins with `-`.
            reader: the user who asks, and sees no private campaigns of others; None sees all.

        Raises:
            InvalidInput: the sort or the cursor is not one.
        """
        order = CampaignOrder.of(sort)
        after = None if cursor is None else int(cursors.decode(cursor, parts=1)[0] or 0)
        conditions = _conditions(state=state, owner=owner, reader=reader)
        with_listings = bool(search.strip()) or sort != NEWEST_FIRST
        if with_listings:
            self._listings.refresh()  # before a view is open: without a WAL it would wait for that
            words = _words(search)
            conditions += [ListingRow.text.contains(word, autoescape=True) for word in words]
        with self._store.session() as session:
            query = select(CampaignRow.id).where(*conditions)
            if with_listings:
                query = query.join(ListingRow, ListingRow.campaign_id == CampaignRow.id)
            if after is not None:
                value = _value(session, query, order, after) if with_listings else after
                query = query.where(order.after(value, after))
            ids = session.scalars(order.sorted(query).limit(limit + 1)).all()
        found = self._read(ids[:limit])
        more = len(ids) > limit
        return CampaignPage(items=found, next=cursors.encode([ids[limit - 1]]) if more else None)

    def _read(self, ids: Sequence[int]) -> list[ListedCampaign]:
        """Return the campaigns of these ids, in their order."""
        with self._store.session() as session:
            events = _events(session, ids)
        cached = {number: self._cache.ready(number, version=events.get(number)) for number in ids}
        found = {number: campaign for number, campaign in cached.items() if campaign is not None}
        missing = [number for number in ids if number not in found]
        if missing:
            refresh_best(self._store, missing)
            with self._store.session() as session:
                fresh = _listed(session, missing)
            for campaign in fresh:
                self._cache.put(campaign.id, campaign, version=events.get(campaign.id))
                found[campaign.id] = campaign
        return [found[number] for number in ids if number in found]


def _conditions(
    *, state: CampaignState | None, owner: str | None, reader: str | None
) -> list[ColumnElement[bool]]:
    """Return what holds of all campaigns of a list."""
    conditions: list[ColumnElement[bool]] = []
    if state is not None:
        conditions.append(CampaignRow.state == state)
    if owner is not None:
        conditions.append(CampaignRow.owner == owner)
    if reader is not None:
        conditions.append(or_(CampaignRow.private.is_(False), CampaignRow.owner == reader))
    return conditions


def _words(search: str) -> list[str]:
    """Return what is looked for; PostgreSQL takes no NUL in a text."""
    found = WORDS.findall(search.casefold().replace("\0", " "))
    return [quoted or word for quoted, word in found]


def _value(session: Session, query: Select[Any], order: CampaignOrder, campaign_id: int) -> Any:
    """Return the figure of the campaign with which the page before ended; raises InvalidInput where
    that is no more in the list."""
    found = session.execute(
        query.with_only_columns(order.column).where(CampaignRow.id == campaign_id)
    ).first()
    if found is None:
        reason = f"campaign {campaign_id}, where the page before ended, is no longer in this list"
        valid = "the first page, which needs no cursor"
        raise InvalidInput("cursor", campaign_id, reason, valid=valid)
    return found[0]


def _events(session: Session, ids: Sequence[int]) -> dict[int, int]:
    """Return the last event of each of these campaigns."""
    query = select(CampaignRow.id, LAST_EVENT).where(CampaignRow.id.in_(ids))
    return dict(session.execute(query).all())


def _listed(session: Session, ids: Sequence[int]) -> list[ListedCampaign]:
    """Read these campaigns from their rows, in any order."""
    if not ids:
        return []
    rows = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(ids))).all()
    found = []
    for campaign, best in campaigns_with_best(session, rows):
        course = [] if campaign.request.study else best.course(ended_trials(campaign))
        listed = ListedCampaign.model_construct(
            **dict(campaign),
            outcome=outcome_of_campaign(campaign),
            best_so_far=thinned(course),
        )
        found.append(listed)
    return found


def thinned(course: Sequence[float]) -> list[float]:
    """Return at most POINTS of them at equal distances, the last one among them."""
    count = min(len(course), POINTS)
    last = len(course) - 1
    return [course[round(last * i / max(count - 1, 1))] for i in range(count)]
