"""Requests sent over one pool of connections, and streams that are taken up again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx2

from autotune.client.calls.call import Call, refusal
from autotune.client.following import Follower
from autotune.client.location import Location
from autotune.client.patience import Patience, settings, unreachable
from autotune.schemas import Event

T = TypeVar("T")


class AsyncTransport:
    """Sends calls over one pool of connections, with patience."""

    def __init__(self, location: Location, patience: Patience) -> None:
        self.base_url = location.url
        through = (
            httpx2.AsyncHTTPTransport(uds=location.socket, verify=False)
            if location.socket
            else None
        )
        self._http = httpx2.AsyncClient(**settings(location), transport=through)
        self._patience = patience

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        attempt = 1
        while True:
            try:
                response = await self._http.send(call.sent_with(self._http))
            except httpx2.TransportError as error:
                wait_s = self._patience.after_error(error, call, attempt=attempt)
                if wait_s is None:
                    raise unreachable(self.base_url, error) from error
            else:
                wait_s = self._patience.after_answer(response, call, attempt=attempt)
                if wait_s is None:
                    return call.answer(response)
            await asyncio.sleep(wait_s)
            attempt += 1

    async def follow(self, follower: Follower) -> AsyncIterator[Event]:
        """Yield events until the follower has seen the end; broken streams are taken up again."""
        while not follower.ended:
            try:
                async with self._http.sse(
                    follower.path, headers=follower.headers(), timeout=follower.timeout()
                ) as source:
                    if follower.refused(source.response):
                        await source.response.aread()
                        raise refusal(source.response)
                    async for message in source:
                        event = follower.take(message)
                        if event is not None:
                            yield event
                        if follower.turned:
                            break
            except httpx2.TransportError as error:
                follower.lost(error, self._patience, base_url=self.base_url)
            await asyncio.sleep(follower.wait_s)
