"""Lists of campaigns: searched, sorted and paged by the database.

The database cannot compute a recommendation, which follows from many trials. What lists sort and
search by is therefore stored in a row for each campaign, and updated after the campaign's events.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Select, and_, delete, func, insert, or_, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import InstrumentedAttribute, Session

from autotune.answers.campaign import origin
from autotune.schemas.campaigns import Campaign, CampaignPage, ListedCampaign, outcome_of_campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.search import ended_of
from search_spaces.errors import InvalidInput
from server.cache import Cache
from server.campaign.best import BestSoFar, ended_trials, has_stand_ins
from server.campaign.start import belief_of_campaign, versions_of
from server.store import paging
from server.store.campaigns import (
    Tally,
    campaign_of,
    campaign_row,
    campaigns_of,
    campaigns_with_best,
)
from server.store.errors import NotFound, cause
from server.store.events import LAST_EVENT, newest_events
from server.store.history import earlier_observations
from server.store.outcomes import BEST, VERSION
from server.store.store import Store
from server.store.tables import CampaignRow, ListingRow, OutcomeRow, TrialRow
from server.store.trials import all_trials

POINTS = 32
"""Maximum points of a campaign's best objective so far."""

AT_ONCE = 200
"""Campaigns that are read together, six kilobytes each and their trials."""

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
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class CampaignOrder:
    """The order of a list. Among equals the newest campaign comes first; campaigns without the
    field come last in both directions."""

    name: str
    falling: bool

    @property
    def column(self) -> InstrumentedAttribute[Any]:
        return SORTS[self.name]

    @classmethod
    def of(cls, sort: str) -> CampaignOrder:
        name, falling = paging.read_sort(sort, SORTS, of="campaigns")
        return cls(name=name, falling=falling)

    def sorted(self, query: Select[Any]) -> Select[Any]:
        order = self.column.desc() if self.falling else self.column.asc()
        if self.name == "id":
            return query.order_by(order)
        return query.order_by(self.column.is_(None), order, CampaignRow.id.desc())

    def after(self, value: Any, campaign_id: int) -> ColumnElement[bool]:
        """Return the condition on campaigns that follow one with this value."""
        older = CampaignRow.id < campaign_id
        if self.name == "id":
            return older if self.falling else CampaignRow.id > campaign_id
        return paging.follows(self.column, value, falling=self.falling, later=older)


class CampaignList:
    """The campaigns of one database, each cached until its next event. Safe for threads."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self._store = store
        self._refreshing = threading.Lock()
        self._cache = cache

    def refresh(self) -> None:
        """Update the listings of campaigns that have changed. If that fails, lists are sorted by
        the previous ones."""
        try:
            with self._refreshing:
                while self._refresh_some():
                    pass
        except DBAPIError as error:  # also if a campaign was deleted meanwhile
            log.warning("listings_not_written", error=cause(error))

    def _refresh_some(self) -> bool:
        with self._store.session() as session:
            events = _outdated(session)
        if events:
            refresh_best(self._store, events)
            with self._store.session() as session:
                rows = _listings(session, events)
            with self._store.transaction() as session:
                session.execute(delete(ListingRow).where(ListingRow.campaign_id.in_(events)))
                there = select(CampaignRow.id).where(CampaignRow.id.in_(events))
                ids = set(session.scalars(there.with_for_update(read=True, key_share=True)))
                rows = [row for row in rows if row["campaign_id"] in ids]
                if rows:
                    session.execute(insert(ListingRow), rows)
        return bool(events)

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
        """Return a page of campaigns, newest first by default.

        Args:
            owner: only campaigns of this user; None for all.
            search: words that all appear in what a list shows, in any case; quoted words appear
                together: `frontier "tp 8"`.
            sort: a name of SORTS, descending with a leading `-`.
            reader: the user who sees no private campaigns of others; None sees all.

        Raises:
            InvalidInput: the sort or the cursor is invalid.
        """
        order = CampaignOrder.of(sort)
        after = None if cursor is None else int(paging.decode(cursor, parts=1)[0] or 0)
        conditions = _conditions(state=state, owner=owner, reader=reader)
        with_listings = bool(search.strip()) or sort != NEWEST_FIRST
        if with_listings:
            self.refresh()  # before the session opens: without a WAL it would wait for that
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
        return CampaignPage(items=found, next=paging.encode([ids[limit - 1]]) if more else None)

    def _read(self, ids: Sequence[int]) -> list[ListedCampaign]:
        with self._store.session() as session:
            events = newest_events(session, ids)
        found: dict[int, ListedCampaign] = {}
        for number in ids:
            known = self._cache.ready(("listed", number), version=events.get(number))
            if known is not None:
                found[number] = known
        missing = [number for number in ids if number not in found]
        if missing:
            refresh_best(self._store, missing)
            with self._store.session() as session:
                fresh = _listed(session, missing)
            for campaign in fresh:
                self._cache.put(("listed", campaign.id), campaign, version=events.get(campaign.id))
                found[campaign.id] = campaign
        return [found[number] for number in ids if number in found]


def _outdated(session: Session) -> dict[int, int]:
    query = (
        select(CampaignRow.id, LAST_EVENT)
        .outerjoin(ListingRow, ListingRow.campaign_id == CampaignRow.id)
        .where(or_(ListingRow.campaign_id.is_(None), ListingRow.event != LAST_EVENT))
        .limit(AT_ONCE)
    )
    return dict(session.execute(query).all())


def _listings(session: Session, events: dict[int, int]) -> list[dict[str, Any]]:
    rows = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(events))).all()
    return [
        listing_of(campaign) | {"event": events[campaign.id]}
        for campaign in campaigns_of(session, rows)
    ]


def listing_of(campaign: Campaign) -> dict[str, Any]:
    """Return the columns of a campaign's listing, except its event."""
    best = campaign.best_strategy
    figures = {
        "campaign_id": campaign.id,
        "nodes": campaign.request.nodes,
        "best_objective": campaign.best_objective,
        "best_mfu": campaign.best_mfu,
        "trials": campaign.trials,
        "failures": campaign.failures,
        "node_hours": campaign.node_hours,
    }
    words = {
        "name": campaign.name,
        "outcome": outcome_of_campaign(campaign),
        "model": campaign.model.name,
        "machine": campaign.machine.name,
        "evaluator": campaign.request.evaluator,
        "best_strategy": best.short() if best else "",
        "owner": campaign.owner or "",
    }
    kind = {"measured": "real trials"}.get(origin(campaign), origin(campaign))
    shown = (f"#{campaign.id}", kind, campaign.reason, *words.values())
    folded = {name: text.casefold() or None for name, text in words.items()}
    return figures | folded | {"text": " ".join(shown).casefold()}


def _conditions(
    *, state: CampaignState | None, owner: str | None, reader: str | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if state is not None:
        conditions.append(CampaignRow.state == state)
    if owner is not None:
        conditions.append(CampaignRow.owner == owner)
    if reader is not None:
        conditions.append(or_(CampaignRow.private.is_(False), CampaignRow.owner == reader))
    return conditions


def _words(search: str) -> list[str]:
    found = WORDS.findall(search.casefold().replace("\0", " "))
    return [quoted or word for quoted, word in found]


def _value(session: Session, query: Select[Any], order: CampaignOrder, campaign_id: int) -> Any:
    """Return the value of the campaign with which the previous page ended; raises InvalidInput if
    it is no longer in the list."""
    found = session.execute(
        query.with_only_columns(order.column).where(CampaignRow.id == campaign_id)
    ).first()
    if found is None:
        reason = f"campaign {campaign_id}, where the page before ended, is no longer in this list"
        valid = "the first page, which needs no cursor"
        raise InvalidInput("cursor", campaign_id, reason, valid=valid)
    return found[0]


def _listed(session: Session, ids: Sequence[int]) -> list[ListedCampaign]:
    rows = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(ids))).all()
    found = []
    for campaign, best in campaigns_with_best(session, rows):
        listed = ListedCampaign.model_construct(
            **dict(campaign),
            outcome=outcome_of_campaign(campaign),
            best_so_far=thinned(best.course(ended_trials(campaign))),
        )
        found.append(listed)
    return found


def thinned(course: Sequence[float]) -> list[float]:
    count = min(len(course), POINTS)
    last = len(course) - 1
    return [course[round(last * i / max(count - 1, 1))] for i in range(count)]


def refresh_best(store: Store, campaign_ids: Collection[int]) -> None:
    """Store the best of these campaigns where it is missing or outdated: after a
    crash. Projected layouts need a fit of the cost model, during which no connection is held."""
    with store.session() as session:
        outdated = _with_outdated_best(session, campaign_ids)
    made: dict[int, tuple[BestSoFar, int]] = {}
    for campaign_id in outdated:
        with suppress(NotFound), store.session() as session:  # deleted meanwhile
            row = campaign_row(session, campaign_id)
            campaign, profile = campaign_of(row, Tally()), row.profile
            trials = all_trials(session, campaign_id)
            earlier = earlier_observations(session, campaign_id)
        belief = None
        if has_stand_ins(campaign.screening):
            versions = versions_of(trials, earlier=earlier)
            belief = belief_of_campaign(
                campaign, versions=versions, profile=profile, earlier=earlier
            )
        best = BestSoFar.of(campaign, trials, belief=belief)
        made[campaign_id] = best, len(ended_of(trials))
    BEST.keep_all(store, made)


def _with_outdated_best(session: Session, campaign_ids: Collection[int]) -> list[int]:
    ended = (
        select(func.count())
        .where(TrialRow.campaign_id == CampaignRow.id, TrialRow.state != TrialState.PENDING)
        .scalar_subquery()
    )
    stored = and_(
        OutcomeRow.campaign_id == CampaignRow.id,
        OutcomeRow.part == BEST.name,
        OutcomeRow.version == VERSION,
    )
    query = select(CampaignRow.id).outerjoin(OutcomeRow, stored)
    outdated = ended != func.coalesce(OutcomeRow.ended, 0)
    return list(session.scalars(query.where(CampaignRow.id.in_(campaign_ids), outdated)))
