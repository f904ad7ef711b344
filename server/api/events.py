"""Event streams by Server-Sent Events."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event

from search_spaces.errors import InvalidInput
from server.api.dependencies import LARGEST_ID, CampaignId, FeedOf, Responses, StoreOf, problems
from server.api.event_feed import BATCH, EventFeed
from server.auth.permissions import caller_of
from server.store.campaigns import campaign_row
from server.store.events import last_event_id

router = APIRouter(tags=["events"])
RETRY_MS = 1000
ALIVE_EVERY_S = 15.0
"""Proxies close connections that are idle for much longer."""
MEDIA_TYPE = "text/event-stream"
SENT: Mapping[str, str] = {
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # nginx would delay events
}
STREAM = (
    "Server-Sent Events: `id` is an event's, `event` its kind, and `data` an Event as JSON. The "
    "stream ends after some minutes, and a client that reconnects misses nothing."
)
MESSAGE = {
    "type": "object",
    "properties": {
        "data": {"type": "string"},
        "event": {"type": "string"},
        "id": {"type": "string"},
        "retry": {"type": "integer", "minimum": 0},
    },
}


def _answers(*statuses: int) -> Responses:
    content = {MEDIA_TYPE: {"itemSchema": MESSAGE}}
    return {200: {"description": STREAM, "content": content}, **problems(*statuses)}


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
    """Return the id of the event after which a stream resumes; None if neither is sent.

    The header wins: a browser that reconnects repeats its first URL.
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
    "/campaigns/{campaign_id:positive}/events",
    response_class=StreamingResponse,
    responses=_answers(404),
)
async def of_campaign(
    request: Request,
    campaign_id: Annotated[int, Depends(_existing)],
    feed: FeedOf,
    after: ResumeAfter = None,
) -> StreamingResponse:
    """Send this campaign's changes from the first one on, or after `Last-Event-ID` (or `after`)."""
    stream = follow(request, feed, after or 0, campaign_id=campaign_id)
    return StreamingResponse(stream, headers=SENT)


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses=_answers(),
)
async def of_all(request: Request, feed: FeedOf, after: ResumeAfter = None) -> StreamingResponse:
    """Send all campaigns' changes from now on, or after `Last-Event-ID` (or `after`)."""
    start = after if after is not None else await feed.read(last_event_id)
    return StreamingResponse(follow(request, feed, start), headers=SENT)


async def follow(
    request: Request, feed: EventFeed, after: int, *, campaign_id: int | None = None
) -> AsyncIterator[bytes]:
    """Yield the events that the caller may see, until the stream's time is up, the service stops or
    the caller is revoked; clients then reconnect."""
    ends = time.monotonic() + request.app.state.pace.stream_life_s
    caller = caller_of(request.scope)
    yield format_sse_event(retry=RETRY_MS, comment="connected")
    with feed.followed():
        await feed.begin()
        while (left_s := ends - time.monotonic()) > 0 and not feed.has_ended(caller.name):
            batch = await feed.batch(campaign_id, after)
            for event in batch:
                if caller.name in event.revoked:
                    return
                if caller.sees(owner=event.owner, private=event.private):
                    yield event.message
                after = event.id
            if len(batch) == BATCH:
                continue
            del batch  # frees memory while the stream waits
            while left_s > 0 and not await feed.news(
                campaign_id, after, user=caller.name, timeout_s=min(ALIVE_EVERY_S, left_s)
            ):
                left_s = ends - time.monotonic()
                if left_s > 0:
                    yield KEEPALIVE_COMMENT
