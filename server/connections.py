"""Connections that are closed if the client is too slow to send a request or read the response."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

CONNECTION = "connection"
"""Key of a request's connection in the state of its scope."""


class BoundedConnection(asyncio.Protocol):
    """An HTTP connection whose client has `limit_s` to send a request, from the connection or its
    first byte on, and as long to receive sent data.

    uvicorn's protocol handles HTTP; `RequestDeadline` notes when a request has been read.
    """

    def __init__(self, *, limit_s: float, app_state: Mapping[str, Any], **options: Any) -> None:
        self._http = H11Protocol(app_state={**app_state, CONNECTION: self}, **options)
        self._limit_s = limit_s
        self._answering = 0
        self._transport: asyncio.Transport | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._http.connection_made(transport)
        self._asking = self._later()

    def data_received(self, data: bytes) -> None:
        if self._asking is None and not self._answering:
            self._asking = self._later()
        self._http.data_received(data)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._reading = self._later()

    def resume_writing(self) -> None:
        self._http.resume_writing()
        _cancel(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)
        _cancel(self._asking)
        _cancel(self._reading)

    def begin_answer(self) -> None:
        """Note that a request is being answered: data received now belongs to it, or waits."""
        self._answering += 1

    def end_answer(self) -> None:
        """Note that it was answered; a body that was refused unread keeps its deadline."""
        self._answering -= 1

    def note_request_read(self) -> None:
        """Cancel the deadline until the next request."""
        _cancel(self._asking)
        self._asking = None

    def _later(self) -> asyncio.TimerHandle | None:
        # `abort` drops unsent data, which the client does not read.
        if self._transport is None:
            return None
        loop = asyncio.get_running_loop()
        return loop.call_later(self._limit_s, self._transport.abort)


class RequestDeadline:
    """Middleware that notes in a `BoundedConnection` when its request has been read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection: BoundedConnection | None = scope.get("state", {}).get(CONNECTION)
        if connection is None:
            await self.app(scope, receive, send)
            return

        async def noting() -> Message:
            message = await receive()
            if not message.get("more_body"):
                connection.note_request_read()
            return message

        connection.begin_answer()
        if not _has_body(scope):
            connection.note_request_read()
        try:
            await self.app(scope, noting, send)
        finally:
            connection.end_answer()


def _has_body(scope: Scope) -> bool:
    headers = Headers(scope=scope)
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
