"""Records every requested change with its user, address and status."""

from __future__ import annotations

import re
import threading
import time

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.auth.authentication import address_of
from server.auth.origin import SAFE_METHODS
from server.auth.permissions import ASKING, CALLER
from server.store import Store
from server.store.audit import note_change

UNKNOWN_A_MINUTE = 60
"""Recorded requests without a known user per minute, so that they cannot fill the database."""
CREATED = re.compile(r"/api/v1/campaigns/(\d+)")
LARGEST_ID = 2**63 - 1
log = structlog.get_logger(__name__)


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
        path = _template(scope)
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


def _template(scope: Scope) -> str:
    """Return the path with the names of its parameters in the place of their values."""
    parts = scope["path"].split("/")
    for name, value in scope.get("path_params", {}).items():
        parts = [f"{{{name}}}" if part == str(value) else part for part in parts]
    return "/".join(parts)


def _campaign_of(scope: Scope, answer: Message) -> int | None:
    """Return the campaign that a request was about, or that it created."""
    named: int | None = scope.get("path_params", {}).get("campaign_id")
    if named is not None:
        return min(named, LARGEST_ID)
    created = CREATED.fullmatch(Headers(raw=answer["headers"]).get("location", ""))
    return int(created[1]) if created else None
