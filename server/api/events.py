"""Changes as they happen, by Server-Sent Events."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Annotated, TypeVar

from anyio import BrokenResourceError
from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session
from starlette.types import ASGIApp, Receive, Scope, Send

from search_spaces.errors import InvalidInput
from server.api.dependencies import LARGEST_ID, CampaignId, StoreOf, problems
from server.store import Store
from server.store.campaigns import campaign_row
from server.store.events import events_since, last_event_id

T = TypeVar("T")
router = APIRouter(tags=["events"])
BATCH = 200
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


def _resume_after(last_event_id: LastEventId = None, after: After = None) -> int | None:
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
    store: StoreOf,
    after: ResumeAfter = None,
) -> AsyncIterator[ServerSentEvent]:
    """Send this campaign's changes from the first one on, or after `Last-Event-ID` (or `after`)."""
    async for message in follow(request, store, after or 0, campaign_id=campaign_id):
        yield message


@router.get(
    "/events",
    response_class=EventSourceResponse,
    response_description=STREAM,
    responses=problems(),
)
async def of_all(
    request: Request, store: StoreOf, after: ResumeAfter = None
) -> AsyncIterator[ServerSentEvent]:
    """Send all campaigns' changes from now on, or after `Last-Event-ID` (or `after`)."""
    start = after if after is not None else await _read(store, last_event_id)
    async for message in follow(request, store, start):
        yield message


async def follow(
    request: Request, store: Store, after: int, *, campaign_id: int | None = None
) -> AsyncIterator[ServerSentEvent]:
    """Send events until the stream's life ends or the service stops; readers then reconnect."""
    settings = request.app.state.settings
    ends = time.monotonic() + settings.stream_life_s
    yield ServerSentEvent(retry=RETRY_MS, comment="connected")
    while time.monotonic() < ends and not request.app.state.stopping.is_set():
        following = partial(events_since, after_id=after, campaign_id=campaign_id, limit=BATCH)
        events = await _read(store, following)
        for event in events:
            yield ServerSentEvent(data=event, event=event.kind, id=str(event.id))
            after = event.id
        if len(events) < BATCH:
            await asyncio.sleep(settings.stream_poll_s)


async def _read(store: Store, query: Callable[[Session], T]) -> T:
    """Return the query's answer, read in a thread: other streams go on meanwhile."""

    def answer() -> T:
        with store.session() as session:
            return query(session)

    return await run_in_threadpool(answer)


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
