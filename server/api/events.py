"""Changes as they happen, by Server-Sent Events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Annotated

from anyio import BrokenResourceError
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.types import ASGIApp, Receive, Scope, Send

from search_spaces.errors import InvalidInput
from server.api.callers import caller_of
from server.api.dependencies import LARGEST_ID, CampaignId, FeedOf, StoreOf, problems
from server.api.event_feed import BATCH, EventFeed
from server.store.campaigns import campaign_row
from server.store.events import last_event_id

router = APIRouter(tags=["events"])
RETRY_MS = 1000
STREAM = (
    "Server-Sent Events: `id` is an event's, `event` its kind, and `data` an Event as JSON. The "
    "stream ends after some minutes, and a client that reconnects misses nothing."
)

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=30,
        description="Id of the last event that was read: the stream goes on after it.",
    ),
]
After = Annotated[
    int | None,
    Query(ge=0, le=LARGEST_ID, description="The same, for a first connection."),
]


def _existing(campaign_id: CampaignId, store: StoreOf) -> int:
    with store.session() as session:
        return campaign_row(session, campaign_id).id


async def _resume_after(last_event_id: LastEventId = None, after: After = None) -> int | None:
    """Return the id of the event to go on after; None where neither is sent.

    The header wins: a browser repeats the first address when it reconnects.
    """
    if last_event_id is None:
        return after
    if not (last_event_id.isascii() and last_event_id.isdecimal()):
        raise InvalidInput(
            "Last-Event-ID", last_event_id, "not an event's id", valid="the `id` of an event"
        )
    return int(last_event_id)


ResumeAfter = Annotated[int | None, Depends(_resume_after)]


@router.get(
    "/campaigns/{campaign_id}/events",
    response_class=EventSourceResponse,
    response_description=STREAM,
    responses=problems(404),
)
async def of_campaign(
    request: Request,
    campaign_id: Annotated[int, Depends(_existing)],
    feed: FeedOf,
    after: ResumeAfter = None,
) -> AsyncIterator[ServerSentEvent]:
    """Send this campaign's changes from the first one on, or after `Last-Event-ID` (or `after`)."""
    async for message in follow(request, feed, after or 0, campaign_id=campaign_id):
        yield message


@router.get(
    "/events",
    response_class=EventSourceResponse,
    response_description=STREAM,
    responses=problems(),
)
async def of_all(
    request: Request, feed: FeedOf, after: ResumeAfter = None
) -> AsyncIterator[ServerSentEvent]:
    """Send all campaigns' changes from now on, or after `Last-Event-ID` (or `after`)."""
    start = after if after is not None else await feed.read(last_event_id)
    async for message in follow(request, feed, start):
        yield message


async def follow(
    request: Request, feed: EventFeed, after: int, *, campaign_id: int | None = None
) -> AsyncIterator[ServerSentEvent]:
    """Send events that the caller may see until the stream's life ends, the service stops or the
    caller is revoked; readers then reconnect."""
    ends = time.monotonic() + request.app.state.settings.stream_life_s
    caller = caller_of(request.scope)
    yield ServerSentEvent(retry=RETRY_MS, comment="connected")
    with feed.followed():
        await feed.begin()
        while time.monotonic() < ends and not request.app.state.stopping.is_set():
            batch = await feed.batch(campaign_id, after)
            for told in batch:
                if caller.name in told.revoked:
                    return
                if caller.sees(owner=told.owner, private=told.private):
                    yield told.message
                after = int(told.message.id or after)
            if len(batch) < BATCH:
                await feed.news(campaign_id, after, timeout_s=ends - time.monotonic())


class StreamEnds:
    """Middleware: a stream whose viewer goes away ends in silence.

    FastAPI pipes a stream through a channel, and raises where its reading end has been closed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.app(scope, receive, send)
        except* BrokenResourceError:
            pass
