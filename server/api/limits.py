"""How much one client may ask of the service: the size of a request, streams at the same time."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.problems import problem

MOST_BODY_BYTES = 2_000_000
"""Of a request. The largest that is any use, a calibration of 1000 observations, has a third."""
TOO_LARGE = f"a request has {MOST_BODY_BYTES // 10**6} MB at most"
STREAMS = "/events"
STREAM_RETRY_S = 5


class BodyLimit:
    """Refuses bodies that are too large: at once where their length is declared, else as soon as
    they have grown so far. Nothing beyond is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > MOST_BODY_BYTES:
            refused = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)
            await refused(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > MOST_BODY_BYTES:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, TOO_LARGE)
            return message

        await self.app(scope, counted, send)


class StreamLimit:
    """Refuses a stream of events while as many are open as the service is to serve."""

    def __init__(self, app: ASGIApp, *, most: int) -> None:
        self.app = app
        self.most = most
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith(STREAMS):
            await self.app(scope, receive, send)
            return
        if self._open >= self.most:
            await self._busy()(scope, receive, send)
            return
        self._open += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._open -= 1

    def _busy(self) -> Response:
        reason = f"{self.most} streams of events are open, as many as AUTOTUNE_MOST_STREAMS allows"
        after = {"Retry-After": str(STREAM_RETRY_S)}
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=after)
