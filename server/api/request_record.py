"""Records requests: the id, the log line and the metrics of each, and on a shared service each
change with its user, address and status."""

from __future__ import annotations

import re
import secrets
import threading
import time

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.answers import RESOURCES
from server.api.dependencies import LARGEST_ID
from server.api.limits import STREAMS
from server.api.metrics import ServiceMetrics
from server.auth.authentication import STATIC, address_of
from server.auth.origin import SAFE_METHODS
from server.auth.permissions import ASKING, CALLER
from server.store import Store
from server.store.audit import note_change

ID_HEADER = "X-Request-ID"
WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
NOWHERE = "none"
"""Label of unknown routes and methods."""
UNKNOWN_A_MINUTE = 60
"""Recorded requests without a known user per minute, so that they cannot fill the database."""
CREATED = re.compile(r"/api/v1/campaigns/(\d+)")

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
        """Count a request and log it, without the query, which may contain a sign-in key."""
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
    """Return the template of a request's path."""
    path = getattr(scope.get("route"), "path_format", None)
    if path is None:
        return STATIC if scope["path"].startswith(STATIC) else NOWHERE
    # The routes of resources have paths relative to the API.
    within = scope["path"].startswith(RESOURCES) and not path.startswith(RESOURCES)
    return RESOURCES + path.removeprefix("/") if within else str(path)


class Auditing:
    """Middleware around authentication: records each change before its answer is sent."""

    def __init__(self, app: ASGIApp, *, store: Store) -> None:
        self.app = app
        self.store = store
        self._lock = threading.Lock()
        self._minute, self._unknown = 0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] in SAFE_METHODS
            or scope["path"] in ASKING - {"/leave"}
        ):
            await self.app(scope, receive, send)
            return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                await run_in_threadpool(self._note, scope, message)
            await send(message)

        await self.app(scope, receive, noted)

    def _note(self, scope: Scope, answer: Message) -> None:
        caller = scope.get(CALLER)
        if caller is None and self._is_too_much():
            return
        route = route_of(scope)
        path = scope["path"] if route == NOWHERE else route
        user = caller.name if caller else None
        try:
            with self.store.transaction() as session:
                note_change(
                    session,
                    user=user,
                    address=address_of(scope),
                    action="".join(filter(str.isprintable, f"{scope['method']} {path}")),
                    status=answer["status"],
                    campaign_id=_campaign_of(scope, answer),
                )
        except SQLAlchemyError as error:
            log.error("change_not_noted", user=user, path=path, error=str(error))

    def _is_too_much(self) -> bool:
        with self._lock:
            minute = int(time.monotonic() // 60)
            if minute != self._minute:
                self._minute, self._unknown = minute, 0
            self._unknown += 1
            return self._unknown > UNKNOWN_A_MINUTE


def _campaign_of(scope: Scope, answer: Message) -> int | None:
    """Return the campaign that a request was about, or that it created."""
    named: int | None = scope.get("path_params", {}).get("campaign_id")
    if named is not None:
        return min(named, LARGEST_ID)
    created = CREATED.fullmatch(Headers(raw=answer["headers"]).get("location", ""))
    return int(created[1]) if created else None
