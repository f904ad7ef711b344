"""What streams of events share."""

from __future__ import annotations

import asyncio
import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from server.api.event_feed import EventFeed
from server.store import Store
from server.store.campaigns import pause_campaign
from tests.server.asking import created, with_trials
from tests.server.statements import statements_of

LONG_S = 30.0


def feed_of(store: Store) -> EventFeed:
    return EventFeed(store, poll_s=0.01, stopping=threading.Event())


def test_streams_at_one_place_read_once(store: Store) -> None:
    campaign = created(store)
    with_trials(store, campaign, 2)
    feed = feed_of(store)

    async def read() -> None:
        with statements_of(store) as one:
            await feed.batch(campaign.id, 0)
        with statements_of(store) as many:
            first, *others = await asyncio.gather(*(feed.batch(campaign.id, 0) for _ in range(50)))
        assert len(many) == len(one)
        assert all(other is first for other in others)
        assert [event.message.split(b"\n")[0] for event in first] == [
            b"event: campaign",
            b"event: trial",
            b"event: trial",
        ]

    asyncio.run(read())


def test_who_comes_as_a_reading_ends_is_read_for_anew(store: Store) -> None:
    """What was read may lack the event that woke a stream: given that at once, again and again, it
    would never let the others go on."""
    campaign = created(store)
    feed = feed_of(store)

    async def ask() -> None:
        reading = asyncio.create_task(feed.batch(campaign.id, 0))
        while not reading.done():
            await asyncio.sleep(0)
            other = feed.batch(campaign.id, 0)
            other.send(None)  # StopIteration: it did not wait
            other.close()

    asyncio.run(ask())


def test_news_wake_those_whom_they_concern(store: Store) -> None:
    campaign, other = created(store), created(store)
    feed = feed_of(store)

    async def follow() -> None:
        with feed.followed(), feed.followed():
            await asyncio.gather(feed.begin(), feed.begin())
            after = (await feed.batch(campaign.id, 0))[-1].id
            mine = asyncio.create_task(feed.news(campaign.id, after, timeout_s=LONG_S))
            everything = asyncio.create_task(feed.news(None, after + 1, timeout_s=LONG_S))
            others = asyncio.create_task(feed.news(other.id, after + 1, timeout_s=LONG_S))
            with store.transaction() as session:
                pause_campaign(session, campaign.id)
            await asyncio.gather(mine, everything)
            assert not others.done()
            others.cancel()
            [event] = await feed.batch(campaign.id, after)
            assert b'"paused"' in event.message

    asyncio.run(follow())


def test_a_database_that_fails_ends_the_streams(store: Store) -> None:
    feed = feed_of(store)

    async def follow() -> None:
        with feed.followed():
            await feed.begin()
            with store.transaction() as session:
                session.execute(text("DROP TABLE events"))
            with pytest.raises(DBAPIError):
                await feed.news(None, 0, timeout_s=LONG_S)

    asyncio.run(follow())
