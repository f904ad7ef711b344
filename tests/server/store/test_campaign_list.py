"""Lists of campaigns: searched, sorted, and read again only where one has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import ListedCampaign
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.cache import Cache
from server.store import Store
from server.store.campaign_list import POINTS, SORTS, CampaignList, listing_of, thinned
from server.store.campaigns import campaign_row, campaigns_of, delete_campaign
from server.store.tables import CampaignRow
from server.store.trials import all_trials
from tests.server.asking import STRATEGY, created, moved, read, write
from tests.server.statements import statements_of
from tests.server.store.test_outcomes import campaign_of, screened
from tests.server.store.test_trials import METRICS


def listed(campaigns: CampaignList, **query: object) -> list[ListedCampaign]:
    """All pages of two, one after the other."""
    found: list[ListedCampaign] = []
    cursor = None
    while True:
        page = campaigns.page(**query, cursor=cursor, limit=2)  # type: ignore[arg-type]
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


@pytest.fixture
def four(store: Store) -> list[int]:
    """Fast; slow and paused; all failed; nothing tried yet."""
    numbers = [
        campaign_of(
            store, [(2, "search", 5.0), (1, "search", None), (4, "search", 9.0)], name="fast"
        ),
        campaign_of(store, [(1, "search", 3.0)], name="slow", model="gpt-1.4b"),
        campaign_of(store, [(1, "search", None)], name="too big"),
        created(store, name="fresh").id,
    ]
    moved(store, numbers[0], CampaignState.DONE, reason="Budget spent: 3 trials.")
    moved(store, numbers[1], CampaignState.PAUSED)
    moved(store, numbers[2], CampaignState.DONE)
    return numbers


@pytest.mark.usefixtures("four")
def test_a_campaign_is_listed_with_what_it_found(store: Store) -> None:
    fresh, too_big, slow, fast = listed(CampaignList(store, Cache()))
    outcomes = [each.outcome for each in (fast, slow, too_big, fresh)]
    assert outcomes == ["done", "paused", "nothing ran", "queued"]
    assert [each.best_so_far for each in (fast, slow, too_big)] == [[5.0, 5.0, 9.0], [3.0], []]
    assert fast.best_strategy is not None
    assert fast.best_strategy.micro_batch_size == 4
    assert fast.best_mfu == METRICS["mfu"]


FOUND: list[tuple[dict[str, object], list[str]]] = [
    ({"sort": "best_objective"}, ["slow", "fast", "fresh", "too big"]),
    ({"sort": "-best_objective"}, ["fast", "slow", "fresh", "too big"]),
    ({"sort": "name"}, ["fast", "fresh", "slow", "too big"]),
    ({"sort": "-failures"}, ["too big", "fast", "fresh", "slow"]),
    ({"sort": "id"}, ["fast", "slow", "too big", "fresh"]),
    ({"search": "22B frontier", "sort": "-name"}, ["too big", "fresh", "fast"]),
    ({"search": "NOTHING ran"}, ["too big"]),
    ({"search": 'fast "MBS 4"'}, ["fast"]),
    ({"search": '"mbs 1" gpt'}, ["slow"]),
    ({"search": "budget"}, ["fast"]),
    ({"state": CampaignState.PAUSED}, ["slow"]),
    ({"search": "nowhere"}, []),
    ({"search": "5%"}, []),
    ({"search": "_ast"}, []),
    ({"search": "\0fast"}, ["fast"]),
    ({"sort": "owner"}, ["fresh", "too big", "slow", "fast"]),
    ({"sort": "-created_at"}, ["fresh", "too big", "slow", "fast"]),
]


@pytest.mark.each_database
@pytest.mark.usefixtures("four")
def test_it_is_sorted_and_searched_over_all_pages(store: Store) -> None:
    for query, found in FOUND:
        assert [each.name for each in listed(CampaignList(store, Cache()), **query)] == found, query
    for cursor in ("nonsense", "W10", "W251bGxd", "W3RydWVd", "WyJhIl0", "WzFlOTld", "é"):
        with pytest.raises(InvalidInput) as caught:
            CampaignList(store, Cache()).page(cursor=cursor)
        assert caught.value.field == "cursor"
    with pytest.raises(InvalidInput):
        CampaignList(store, Cache()).page(sort="rate")
    with pytest.raises(InvalidInput):
        CampaignList(store, Cache()).page(sort="name", cursor="WzQwXQ")


def test_only_what_has_changed_is_read_again(store: Store, four: list[int]) -> None:
    campaigns = CampaignList(store, Cache())
    listed(campaigns)
    with statements_of(store) as statements:
        again = listed(campaigns)
    assert len(statements) == len(again), "two for each page: its ids and their last events"
    moved(store, four[3], CampaignState.CANCELLED)
    write(store, delete_campaign, four[0])
    changed = listed(campaigns)
    assert [(each.name, each.outcome) for each in changed[:2]] == [
        ("fresh", "cancelled"),
        ("too big", "nothing ran"),
    ]
    assert len(changed) == 3


@pytest.mark.each_database
def test_each_order_is_that_of_the_figures_and_of_code_points(store: Store) -> None:
    """Collations of databases differ."""
    for name in ("b", "A", "a b", "a-b", "Zoë", "éa", "ab", "Ab"):
        campaign_of(store, [(1, "search", float(len(name)))], name=name)
    created(store, name="nothing yet")
    campaigns = CampaignList(store, Cache())
    for sort in (sign + name for name in SORTS for sign in ("", "-")):
        found = [each.id for each in listed(campaigns, sort=sort)]
        assert sorted(found) == list(range(1, 10)), sort
        with store.session() as session:
            rows = campaigns_of(session, [campaign_row(session, number) for number in found])
        figures: list[dict[str, Any]] = [
            {"id": row.id, "created_at": row.created_at} | listing_of(row) for row in rows
        ]
        keys = [each[sort.removeprefix("-")] for each in figures]
        there = [key for key in keys if key is not None]
        assert keys[: len(there)] == sorted(there, reverse=sort.startswith("-")), sort


def test_of_many_campaigns_those_of_a_page_alone_are_read(store: Store) -> None:
    for number in range(10):
        created(store, name=f"campaign {number}")
    loaded: list[int] = []

    def note(row: CampaignRow, context: object) -> None:  # noqa: ARG001
        loaded.append(row.id)

    CampaignList(store, Cache()).refresh()
    event.listen(CampaignRow, "load", note)
    try:
        for query in ({}, {"search": "campaign"}, {"sort": "-best_mfu"}):
            loaded.clear()
            page = CampaignList(store, Cache()).page(**query, limit=3)  # type: ignore[arg-type]
            assert [each.id for each in page.items] == sorted(loaded, reverse=True) == [10, 9, 8]
    finally:
        event.remove(CampaignRow, "load", note)


def test_a_private_campaign_is_in_no_list_of_others(store: Store) -> None:
    mine, theirs = created(store, private=True), created(store, private=True)
    with store.transaction() as session:
        campaign_row(session, mine.id).owner = "ann"
        campaign_row(session, theirs.id).owner = "bob"
    campaigns = CampaignList(store, Cache())
    for query in ({}, {"search": "22b"}, {"sort": "name"}):
        assert [each.id for each in listed(campaigns, reader="ann", **query)] == [mine.id]
        assert listed(campaigns, reader="cat", **query) == []
        assert len(listed(campaigns, **query)) == 2


def test_a_list_is_sorted_by_known_values_while_writes_wait(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'autotune.db'}", patience_s=0.05)
    store.upgrade()
    campaigns, first = CampaignList(store, Cache()), created(store)
    campaigns.refresh()
    created(store)
    with closing(sqlite3.connect(store.shown)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert [each.id for each in listed(campaigns, sort="name")] == [first.id]
    assert len(listed(campaigns, sort="name")) == 2
    store.close()


def test_what_is_projected_is_listed_so(store: Store) -> None:
    campaign = screened(store, {1: 5.0})
    full = replace(STRATEGY, num_nodes=16)
    campaigns = CampaignList(store, Cache())
    [found] = listed(campaigns)
    answer = recommend(found, read(store, all_trials, campaign))
    assert answer is not None
    assert found.best_strategy == answer.best.strategy == full
    assert found.best_objective == pytest.approx(answer.best.metrics.tokens_per_s)
    assert found.best_projected_from_nodes == answer.best.projected_from_nodes == 4
    assert found.fastest_objective is None, "no trial ran on its own nodes"


@pytest.mark.parametrize("count", [1, 2, POINTS, POINTS + 1, 1000])
def test_a_line_has_its_first_and_its_last_figure(count: int) -> None:
    course = [float(each) for each in range(count)]
    points = thinned(course)
    assert len(points) == min(count, POINTS)
    assert (points[0], points[-1]) == (course[0], course[-1])
    assert points == sorted(set(points))
