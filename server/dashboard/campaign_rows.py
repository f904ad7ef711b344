"""The list of campaigns: its columns, its order, and the addresses of other orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from autotune.schemas.campaigns import CampaignPage, ListedCampaign
from search_spaces.errors import InvalidInput
from server.store.campaign_list import NEWEST_FIRST, CampaignList
from server.store.events import last_event_id
from server.store.store import Store

WIDTH, HEIGHT, MARGIN = 96.0, 24.0, 2.0
"""Of a sparkline, in SVG units."""


@dataclass(frozen=True)
class ListColumn:
    """A column of the list. `sort` is the API's name; a first click sorts descending if
    `falling`."""

    label: str
    sort: str
    falling: bool = False
    number: bool = False


LIST_COLUMNS = (
    ListColumn("Campaign", "id", falling=True),
    ListColumn("Outcome", "outcome"),
    ListColumn("Best", "best_strategy"),
    ListColumn("Rate", "best_objective", falling=True, number=True),
    ListColumn("MFU", "best_mfu", falling=True, number=True),
    ListColumn("Model", "model"),
    ListColumn("Machine", "machine"),
    ListColumn("Nodes", "nodes", falling=True, number=True),
    ListColumn("Trials", "trials", falling=True, number=True),
    ListColumn("Failed", "failures", falling=True, number=True),
    ListColumn("Node-h", "node_hours", falling=True, number=True),
    ListColumn("Age", "created_at", falling=True, number=True),
)
OWNER = ListColumn("Owner", "owner")
"""The column of owners, after the campaign, if the service has a group of users."""


@dataclass(frozen=True)
class ListHead:
    """A column's heading: the address to sort by it, and its current `aria-sort`, empty if the list
    is not sorted by it."""

    column: ListColumn
    href: str
    order: str


@dataclass(frozen=True, kw_only=True)
class ListQuestion:
    """The filter and order of the list."""

    owner: str | None = None
    search: str = ""
    sort: str = NEWEST_FIRST
    cursor: str | None = None


def address(query: ListQuestion) -> str:
    values = vars(query) | {"sort": "" if query.sort == NEWEST_FIRST else query.sort}
    encoded = urlencode({name: value for name, value in values.items() if value})
    return f"/?{encoded}" if encoded else "/"


def context(
    store: Store, campaigns: CampaignList, query: ListQuestion, *, reader: str | None = None
) -> dict[str, Any]:
    """Return the data of the list, or a sentence if the query is invalid."""
    with store.session() as session:
        last_event = last_event_id(session)
    query = replace(query, search=query.search.strip(), owner=query.owner or None)
    first, refusal, page = replace(query, cursor=None), "", CampaignPage(items=[])
    try:
        page = campaigns.page(**vars(query), reader=reader)
    except InvalidInput as error:
        refusal = f"{error.reason[:1].upper()}{error.reason[1:]}."
    return {
        "here": "campaigns",
        "page": page,
        "refusal": refusal,
        "heads": [_head(column, first) for column in LIST_COLUMNS],
        "owner_head": _head(OWNER, first),
        "search": query.search,
        "sort": query.sort,
        "owner": query.owner,
        "of_owner": lambda name: address(replace(first, owner=name)),
        "first_page": query.cursor is None,
        "first_href": address(first),
        "next_href": address(replace(query, cursor=page.next)) if page.next else "",
        "newest_first": query.sort == NEWEST_FIRST,
        "last_event": last_event,
    }


def _head(column: ListColumn, query: ListQuestion) -> ListHead:
    falling, sort = f"-{column.sort}", query.sort
    order = {falling: "descending", column.sort: "ascending"}.get(sort, "")
    following = {falling: column.sort, column.sort: falling}.get(
        sort, falling if column.falling else column.sort
    )
    return ListHead(column=column, href=address(replace(query, sort=following)), order=order)


def sparkline(course: Sequence[float]) -> str:
    """Return the points of a line from its first figure to its last."""
    low, high = min(course), max(course)
    inner = HEIGHT - 2 * MARGIN
    step = WIDTH / max(len(course) - 1, 1)
    heights = [(each - low) / (high - low) if high > low else 0.5 for each in course]
    points = [(i * step, MARGIN + inner * (1.0 - each)) for i, each in enumerate(heights)]
    points = points if len(points) > 1 else [*points, (WIDTH, points[0][1])]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def course_words(campaign: ListedCampaign) -> str:
    """Return a description of the sparkline."""
    first, last = campaign.best_so_far[0], campaign.best_so_far[-1]
    if last <= first:
        return "the first trial is still the best"
    return f"the best rose by {100 * (last / first - 1):.0f} % over its trials"
