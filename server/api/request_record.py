"""Records requests: the id, the log line and the metrics of each."""

from __future__ import annotations

import re
import secrets
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.answers import RESOURCES
from server.api.limits import STREAMS
from server.api.metrics import ServiceMetrics
from server.auth.authentication import STATIC
from server.auth.permissions import CALLER

ID_HEADER = "X-Request-ID"
WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
NOWHERE = "none"
"""Label of unknown routes and methods."""

log = structlog.get_logger(__name__)


class RequestRecord:
    """Middleware around all others, so that refusals and failures are recorded, too.

    The id is the one that the client proposes if it is well-formed. It is in each log line of the
    request (structlog's context variable `request`), and in the response.
    """

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        proposed = Headers(scope=scope).get(ID_HEADER, "")
        given = proposed if WELL_FORMED_ID.fullmatch(proposed) else secrets.token_hex(8)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                MutableHeaders(scope=message)[ID_HEADER] = given
            await send(message)

        with structlog.contextvars.bound_contextvars(request=given):
            try:
                await self.app(scope, receive, noted)
            finally:
                self._note(scope, status, time.perf_counter() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else NOWHERE
        route = route_of(scope)
        is_stream = route.endswith(STREAMS)
        self.metrics.count(method, route, status, None if is_stream else seconds)
        client, caller = scope.get("client"), scope.get(CALLER)
        log.info(
            "answered",
            method=method,
            path=scope["path"],
            route=route,
            status=status,
            user=caller.name if caller else None,
            duration_s=round(seconds, 4),
            client=client[0] if client else "",
        )


def route_of(scope: Scope) -> str:
    """Return the template of a request's path."""
    path = getattr(scope.get("route"), "path_format", None)
    if path is None:
        return STATIC if scope["path"].startswith(STATIC) else NOWHERE
    # The routes of resources have paths relative to the API.
    within = scope["path"].startswith(RESOURCES) and not path.startswith(RESOURCES)
    return RESOURCES + path.removeprefix("/") if within else str(path)
