"""The feed of all event streams: the database is polled, read and encoded once for all of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool
from fastapi.sse import format_sse_event
from sqlalchemy.orm import Session

from server.store import Store
from server.store.events import events_since, last_event_id, newest_since, private_owners
from server.store.users import revoked_users

T = TypeVar("T")
BATCH = 200

Place = tuple[int | None, int]
"""A campaign, or None for all, and the event after which a stream resumes."""


@dataclass(frozen=True, kw_only=True)
class EncodedEvent:
    """An encoded event, and the owner of its campaign if it is private.

    Attributes:
        revoked: users who may read no events any more.
    """

    id: int
    message: bytes
    owner: str | None
    private: bool
    revoked: frozenset[str]


class EventFeed:
    """Polls the database while there are streams, and wakes them for new events. Streams at the
    same place share one query.

    Belongs to the event loop of the streams.
    """

    def __init__(self, store: Store, *, poll_s: float, stopping: threading.Event) -> None:
        self._store = store
        self._poll_s = poll_s
        self._stopping = stopping
        self._streams = 0
        self._beginning = asyncio.Lock()
        self._polling: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._last = 0
        self._newest: dict[int, int] = {}
        self._revoked: frozenset[str] = frozenset()
        self._reading: dict[Place, asyncio.Task[list[EncodedEvent]]] = {}

    @property
    def streams(self) -> int:
        return self._streams

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count a stream while the block runs; await `begin` in it to start polling."""
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            if not self._streams and self._polling is not None:
                self._polling.cancel()
                self._polling = None

    async def begin(self) -> None:
        """Start polling: no later event is missed between a batch and `news`."""
        async with self._beginning:
            if self._polling is None or self._polling.done():
                self._last, self._revoked = await self.read(
                    lambda session: (last_event_id(session), revoked_users(session))
                )
                self._polling = asyncio.create_task(self._poll())

    async def batch(self, campaign_id: int | None, after: int) -> list[EncodedEvent]:
        """Return the next events of a campaign, None for all; at most BATCH."""
        place = (campaign_id, after)
        reading = self._reading.get(place)
        if reading is None or reading.done():
            reading = self._reading[place] = asyncio.create_task(self._batch(campaign_id, after))
        return await asyncio.shield(reading)  # others may wait for it

    def has_ended(self, user: str | None) -> bool:
        """Return whether a user's streams end: the service stops, or the user was revoked."""
        return self._stopping.is_set() or user in self._revoked

    async def news(
        self, campaign_id: int | None, after: int, *, user: str | None = None, timeout_s: float
    ) -> bool:
        """Wait for an event after this one, or the end of the user's streams; return False after
        `timeout_s`. Raises the error with which polling ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not (self.has_ended(user) or self._is_known(campaign_id, after)):
                    if self._polling is not None and self._polling.done():
                        self._polling.result()
                    else:
                        await self._news.wait()
                return True
        return False

    async def read(self, query: Callable[[Session], T]) -> T:
        """Return the result of a query, run in a thread."""

        def answer() -> T:
            with self._store.session() as session:
                return query(session)

        return await run_in_threadpool(answer)

    def _is_known(self, campaign_id: int | None, after: int) -> bool:
        newest = self._last if campaign_id is None else self._newest.get(campaign_id, 0)
        return newest > after

    async def _batch(self, campaign_id: int | None, after: int) -> list[EncodedEvent]:
        def following(session: Session) -> list[EncodedEvent]:
            events = events_since(session, after, campaign_id, BATCH)
            private = private_owners(session, {event.campaign_id for event in events})
            revoked = revoked_users(session) if events else frozenset()
            return [
                EncodedEvent(
                    id=event.id,
                    message=format_sse_event(
                        data_str=event.model_dump_json(), event=event.kind, id=str(event.id)
                    ),
                    owner=private.get(event.campaign_id),
                    private=event.campaign_id in private,
                    revoked=revoked,
                )
                for event in events
            ]

        try:
            return await self.read(following)
        finally:  # at once: a finished task would make later streams read an old batch
            self._reading.pop((campaign_id, after), None)

    async def _poll(self) -> None:
        try:
            while not self._stopping.is_set():
                await asyncio.sleep(self._poll_s)
                found, revoked = await self.read(self._look)
                self._newest |= found
                self._last = max(found.values(), default=self._last)
                if found or revoked != self._revoked:
                    self._revoked = revoked
                    self._wake()
        finally:
            asyncio.get_running_loop().call_soon(self._wake)  # once this task is done

    def _look(self, session: Session) -> tuple[dict[int, int], frozenset[str]]:
        return newest_since(session, after_id=self._last), revoked_users(session)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
