"""Lists of campaigns: narrowed by words, in any order, read again only where one has changed."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from autotune.campaign_outcome import outcome_of_campaign
from autotune.resolution import strategy_of
from autotune.schemas import (
    Campaign,
    CampaignPage,
    CampaignState,
    ListedCampaign,
    MachineShape,
    ModelShape,
)
from search_spaces.errors import InvalidInput, closest
from server.store import cursors
from server.store.campaigns import campaigns_of
from server.store.shared_names import models_in, share_names
from server.store.tables import CampaignRow, EventRow, TrialRow

MOST_CAMPAIGNS = 2000
"""Six kilobytes each, and more where one has started from many others."""

AT_ONCE = 500
"""Campaigns that one statement names: databases limit how many values it may have."""

POINTS = 32
"""Of a campaign's best figure so far."""

WORDS = re.compile(r'"([^"]+)"|([^\s"]+)')

NEWEST_FIRST = "-id"

Shape = TypeVar("Shape", ModelShape, MachineShape)

SortKey = str | float | datetime | None
SORTS: Mapping[str, Callable[[ListedCampaign], SortKey]] = {
    "id": lambda campaign: campaign.id,
    "name": lambda campaign: campaign.name.casefold(),
    "outcome": lambda campaign: campaign.outcome,
    "model": lambda campaign: campaign.model.name.casefold(),
    "machine": lambda campaign: campaign.machine.name.casefold(),
    "nodes": lambda campaign: campaign.request.nodes,
    "evaluator": lambda campaign: campaign.request.evaluator,
    "best_strategy": lambda campaign: strategy_words(campaign) or None,
    "best_objective": lambda campaign: campaign.best_objective,
    "best_mfu": lambda campaign: campaign.best_mfu,
    "trials": lambda campaign: campaign.trials,
    "failures": lambda campaign: campaign.failures,
    "node_hours": lambda campaign: campaign.node_hours,
    "created_at": lambda campaign: campaign.created_at,
    "owner": lambda campaign: campaign.owner,
}


class Sees(Protocol):
    """Whether who asks may see a campaign."""

    def __call__(self, *, owner: str | None, private: bool) -> bool: ...


def all_seen(*, owner: str | None, private: bool) -> bool:  # noqa: ARG001
    return True


def strategy_words(campaign: Campaign) -> str:
    """Return the recommended layout in one line; empty where there is none."""
    return strategy_of(campaign.best_strategy).short() if campaign.best_strategy else ""


@dataclass(frozen=True, kw_only=True)
class _Mark:
    """A campaign's state, who sees it, and its last event: what was read of it stands until that
    grows."""

    state: str
    owner: str | None
    private: bool
    event: int


class CampaignList:
    """The campaigns of one database; any thread may ask.

    One query tells which have changed; those alone are read again. With more than `most` campaigns
    a search through all of them costs time.
    """

    def __init__(self, most: int = MOST_CAMPAIGNS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, tuple[int, ListedCampaign]] = OrderedDict()

    def page(
        self,
        session: Session,
        *,
        state: CampaignState | None = None,
        owner: str | None = None,
        search: str = "",
        sort: str = NEWEST_FIRST,
        cursor: str | None = None,
        limit: int = 50,
        sees: Sees = all_seen,
    ) -> CampaignPage:
        """Return a page of campaigns, newest first where nothing else is asked.

        Those without the figure that is sorted by come last either way.

        Args:
            owner: whose campaigns alone; None for all.
            search: words that each stand somewhere in what a list shows, in any case; several
                in quotation marks stand there so: `frontier "tp 8"`.
            sort: a name of SORTS, falling where it begins with `-`.
            sees: tells by its owner, and by whether it is private, which campaigns there are for
                who asks.

        Raises:
            InvalidInput: the sort or the cursor is not one.
        """
        key, falling = _sort(sort)
        after = None if cursor is None else int(cursors.decode(cursor, parts=1)[0] or 0)
        marks = _marks(session)
        ids = sorted(
            (
                number
                for number, mark in marks.items()
                if (state is None or mark.state == state)
                and (owner is None or mark.owner == owner)
                and sees(owner=mark.owner, private=mark.private)
            ),
            reverse=True,
        )
        if not search.strip() and sort == NEWEST_FIRST:
            ids = [number for number in ids if after is None or number < after][: limit + 1]
            found = self._read(session, ids, marks)
        else:
            words = [quoted or word for quoted, word in WORDS.findall(search.casefold())]
            found = [each for each in self._read(session, ids, marks) if _has(each, words)]
            found = _following(_sorted(found, key, falling=falling), after)
        more = len(found) > limit
        return CampaignPage(
            items=found[:limit], next=cursors.encode([found[limit - 1].id]) if more else None
        )

    def _read(
        self, session: Session, ids: Sequence[int], marks: Mapping[int, _Mark]
    ) -> list[ListedCampaign]:
        """Return the campaigns of these ids, in their order."""
        with self._lock:
            kept = {number: self._kept[number] for number in ids if number in self._kept}
        found = {
            number: campaign
            for number, (event, campaign) in kept.items()
            if event == marks[number].event and _starts_stand(campaign, marks)
        }
        fresh = _listed(session, [number for number in ids if number not in found])
        with self._lock:
            for number in [number for number in self._kept if number not in marks]:
                del self._kept[number]
            for campaign in fresh:
                self._kept[campaign.id] = (marks[campaign.id].event, campaign)
            for number in found:
                if number in self._kept:
                    self._kept.move_to_end(number)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        found |= {campaign.id: campaign for campaign in fresh}
        return [found[number] for number in ids if number in found]


def _marks(session: Session) -> dict[int, _Mark]:
    newest = select(func.max(EventRow.id)).where(EventRow.campaign_id == CampaignRow.id)
    query = select(
        CampaignRow.id,
        CampaignRow.state,
        CampaignRow.owner,
        CampaignRow.private,
        func.coalesce(newest.scalar_subquery(), 0),
    )
    return {
        number: _Mark(state=state, owner=owner, private=private, event=event)
        for number, state, owner, private, event in session.execute(query)
    }


def _starts_stand(campaign: Campaign, marks: Mapping[int, _Mark]) -> bool:
    """Return whether what it says of campaigns that it started from holds: these may be deleted."""
    starts = campaign.started_from or []
    return all(start.deleted == (start.campaign_id not in marks) for start in starts)


def _listed(session: Session, ids: Sequence[int]) -> list[ListedCampaign]:
    """Read these campaigns from their rows, in any order."""
    found = []
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        rows = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(some))).all()
        campaigns = campaigns_of(session, rows)
        courses = _best_so_far(session, some)
        found += [
            ListedCampaign.model_construct(
                **dict(campaign)
                | {"model": _kept_once(campaign.model), "machine": _kept_once(campaign.machine)},
                outcome=outcome_of_campaign(campaign),
                best_so_far=[] if campaign.request.study else courses.get(campaign.id, []),
            )
            for campaign in campaigns
        ]
    for each in found:
        share_names(models_in(each))
    return found


@lru_cache(maxsize=256)
def _kept_once(shape: Shape) -> Shape:
    """Return the first that was equal: campaigns are many, models and machines few."""
    return shape


def _best_so_far(session: Session, ids: Sequence[int]) -> dict[int, list[float]]:
    """Return for each campaign the best figure after each of its trials, thinned to POINTS."""
    query = (
        select(TrialRow.campaign_id, TrialRow.objective)
        .where(TrialRow.campaign_id.in_(ids), TrialRow.state != "pending")
        .order_by(TrialRow.campaign_id, TrialRow.number)
    )
    courses: dict[int, list[float]] = {}
    for campaign_id, objective in session.execute(query):
        course = courses.setdefault(campaign_id, [])
        best = max([*course[-1:], *([] if objective is None else [objective])], default=None)
        if best is not None:
            course.append(best)
    return {campaign_id: thinned(course) for campaign_id, course in courses.items()}


def thinned(course: Sequence[float]) -> list[float]:
    """Return at most POINTS of them at equal distances, the last one among them."""
    count = min(len(course), POINTS)
    last = len(course) - 1
    return [course[round(last * i / max(count - 1, 1))] for i in range(count)]


def _sort(sort: str) -> tuple[Callable[[ListedCampaign], SortKey], bool]:
    """Return what to sort by, and whether it falls; raises InvalidInput."""
    name = sort.removeprefix("-")
    if name not in SORTS:
        near = closest(name, SORTS)
        reason = "campaigns cannot be sorted by it"
        reason += f"; meant {' or '.join(near)}?" if near else ""
        valid = ", ".join(SORTS) + "; with a leading - for falling order"
        raise InvalidInput("sort", sort, reason, valid=valid)
    return SORTS[name], sort.startswith("-")


def _sorted(
    campaigns: Iterable[ListedCampaign],
    key: Callable[[ListedCampaign], SortKey],
    *,
    falling: bool,
) -> list[ListedCampaign]:
    """Return them in order; of those that are level the newest first."""
    with_key: list[tuple[Any, ListedCampaign]] = []
    without = []
    for campaign in campaigns:
        value = key(campaign)
        if value is None:
            without.append(campaign)
        else:
            with_key.append((value, campaign))
    with_key.sort(key=lambda pair: pair[0], reverse=falling)
    return [campaign for _, campaign in with_key] + without


def _has(campaign: ListedCampaign, words: Sequence[str]) -> bool:
    shown = (
        f"#{campaign.id}",
        campaign.name,
        campaign.model.name,
        campaign.machine.name,
        campaign.request.evaluator,
        "simulated" if campaign.simulated else "real trials",
        campaign.owner or "",
        campaign.outcome,
        campaign.reason,
        strategy_words(campaign),
    )
    text = " ".join(shown).casefold()
    return all(word in text for word in words)


def _following(campaigns: Sequence[ListedCampaign], after: int | None) -> list[ListedCampaign]:
    """Return those that follow the one of this id; raises InvalidInput where it is not there."""
    if after is None:
        return list(campaigns)
    for place, campaign in enumerate(campaigns):
        if campaign.id == after:
            return list(campaigns[place + 1 :])
    reason = f"campaign {after}, with which the page before ended, is no more in this list"
    raise InvalidInput("cursor", after, reason, valid="the first page, which needs no cursor")
