"""Each request recorded: an id by which it is found again, and its place in the figures."""

from __future__ import annotations

import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server import request_id
from server.api.conditional import RESOURCES
from server.api.limits import STREAMS
from server.api.metrics import ServiceMetrics
from server.auth.authentication import STATIC

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
NOWHERE = "none"
"""In the place of the template, and of the method, of what the service has not."""

log = structlog.get_logger(__name__)


class RequestRecord:
    """Middleware around everything, refusals and failures included."""

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        given = request_id.begin(Headers(scope=scope).get(request_id.HEADER, ""))

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)[request_id.HEADER] = given
            await send(message)

        with structlog.contextvars.bound_contextvars(request=given):
            try:
                await self.app(scope, receive, noted)
            finally:
                self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        """Count a request, and write its line; of its address without the query, which may hold
        what lets a browser in."""
        method = scope["method"] if scope["method"] in METHODS else NOWHERE
        route = route_of(scope)
        is_stream = route.endswith(STREAMS)
        self.metrics.count(method, route, status, None if is_stream else seconds)
        client = scope.get("client")
        log.info(
            "answered",
            method=method,
            path=scope["path"],
            route=route,
            status=status,
            duration_s=round(seconds, 4),
            client=client[0] if client else "",
        )


def route_of(scope: Scope) -> str:
    """Return the template of a request's path, which is of a few however many are asked for."""
    path = getattr(scope.get("route"), "path_format", None)
    if path is None:
        return STATIC if scope["path"].startswith(STATIC) else NOWHERE
    # A resource knows its path within the API, and not where that begins.
    within = scope["path"].startswith(RESOURCES) and not path.startswith(RESOURCES)
    return RESOURCES + path.removeprefix("/") if within else str(path)
