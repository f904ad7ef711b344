"""Limits for clients: the size of a request, and a user's share of threads and event streams."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.auth.authentication import STATIC, address_of
from server.auth.permissions import CALLER
from server.problems import problem


@dataclass(frozen=True)
class BodyLimit:
    """Maximum size of a body, in bytes and in fields at all depths."""

    size: int
    fields: float = float("inf")


BODY = BodyLimit(2_000_000, fields=2000)
"""The largest useful one, a campaign with its adapter's files, has less."""
LOG = BodyLimit(256_000_000)
BODY_OF_PATH = {
    "/api/v1/diagnoses": LOG,
    "/fragments/diagnosis": LOG,
    # a thousand runs, each with all dimensions
    "/api/v1/imports": BodyLimit(BODY.size, fields=50_000),
}
MOST_PARAMETERS = 100
"""Maximum parameters of a query."""
STREAMS = "/events"
MOST_STREAMS = 1000
"""Maximum open event streams."""
MOST_STREAMS_OF_USER = 100
"""The same, of each user except the service's own."""
RETRY_S = 5
AT_ONCE = 8
"""Concurrent requests of one user; the service has forty threads."""
WAITING = 24
"""Further requests of one user that wait; a browser opens six connections."""


class RequestLimit:
    """Middleware that refuses too large requests: at once if the length is declared, otherwise
    while the body is received."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        most = BODY_OF_PATH.get(scope["path"], BODY)
        too_large = f"a request has {most.size // 10**6} MB at most"
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared) > most.size:
            refused = problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large)
            await refused(scope, receive, send)
            return
        if scope["query_string"].count(b"&") >= MOST_PARAMETERS:
            reason = f"a query has {MOST_PARAMETERS} parameters at most"
            await problem(HTTPStatus.UNPROCESSABLE_ENTITY, reason)(scope, receive, send)
            return
        received = fields = 0

        async def counted() -> Message:
            nonlocal received, fields
            message = await receive()
            body: bytes = message.get("body", b"")
            received += len(body)
            fields += body.count(b":")  # one after each name in JSON
            if received > most.size:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, too_large)
            if fields > most.fields:
                reason = f"a request has {most.fields} fields at most"
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            return message

        await self.app(scope, counted, send)


@dataclass(kw_only=True)
class _Share:
    """The requests of one user."""

    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    requests: int = 0


class ConcurrencyLimit:
    """Middleware that runs AT_ONCE requests of a user concurrently, lets WAITING more wait, and
    refuses others with 429, so that one user cannot take all threads.

    The same limits apply to each address without a known user. The service's own user has no limit.
    Streams hold no thread, and have their own limit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._shares: dict[str, _Share] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = None if _is_light(scope) else user_or_address(scope)
        if user is None:
            await self.app(scope, receive, send)
            return
        share = self._shares.setdefault(user, _Share())
        if share.requests >= AT_ONCE + WAITING:
            reason = (
                f"{share.requests} of your requests are under way, as many as one user may have"
            )
            await too_many(reason)(scope, receive, send)
            return
        share.requests += 1
        try:
            async with share.turns:
                await self.app(scope, receive, send)
        finally:
            share.requests -= 1
            if not share.requests:
                del self._shares[user]


class StreamLimit:
    """Middleware that limits the number of open event streams."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._open: Counter[str | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].endswith(STREAMS):
            await self.app(scope, receive, send)
            return
        user = user_or_address(scope)
        if refused := self._refusal(user):
            await refused(scope, receive, send)
            return
        self._open[user] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._open[user] -= 1
            if not self._open[user]:
                del self._open[user]

    def _refusal(self, user: str | None) -> Response | None:
        if user is not None and self._open[user] >= MOST_STREAMS_OF_USER:
            return too_many(
                f"{MOST_STREAMS_OF_USER} of your streams of events are open, which is the maximum"
            )
        if self._open.total() >= MOST_STREAMS:
            reason = f"{MOST_STREAMS} streams of events are open, which is the maximum"
            after = {"Retry-After": str(RETRY_S)}
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=after)
        return None


def user_or_address(scope: Scope) -> str | None:
    """Return the user whose limits apply to a request, or the address of an unknown user; None for
    the service's own user."""
    caller = scope.get(CALLER)
    if caller is None:
        return f"from {address_of(scope)}"
    name: str | None = caller.name
    return name


def too_many(reason: str) -> Response:
    """Return a response 429."""
    return problem(HTTPStatus.TOO_MANY_REQUESTS, reason, headers={"Retry-After": str(RETRY_S)})


def _is_light(scope: Scope) -> bool:
    if scope["type"] != "http":
        return True
    path: str = scope["path"]
    return path.startswith(STATIC) or path.endswith(STREAMS)
