"""HEAD for whatever GET answers, and 304 for what a client has already (RFC 9110, 13.1.2)."""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RESOURCES = "/api/v1/"
STREAMS = "/events"
JSON = "application/json"
ETAG = {
    "description": "Follows from the answer; to be sent as `If-None-Match`.",
    "schema": {"type": "string"},
}
"""The header as the reference has it."""


class ConditionalAnswers:
    """Middleware of the resources: each JSON answer that brings no ETag has one, of its bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_resource = scope["type"] == "http" and scope["path"].startswith(RESOURCES)
        reads = is_resource and scope["method"] in {"GET", "HEAD"}
        if not reads or scope["path"].endswith(STREAMS):
            await self.app(scope, receive, send)
            return
        answer = _Answer(send, Headers(scope=scope), without_body=scope["method"] == "HEAD")
        within = {**scope, "method": "GET"}
        try:
            await self.app(within, receive, answer.send)
        finally:
            scope["route"] = within.get("route")  # whoever counts requests asks for it


class _Answer:
    """Sends one answer on: JSON once all of it is known, anything else as it comes."""

    def __init__(self, send: Send, asked: Headers, *, without_body: bool) -> None:
        self._send = send
        self._asked = asked
        self._without_body = without_body
        self._start: Message | None = None
        self._body = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            kind = headers.get("content-type", "")
            fresh = message["status"] == HTTPStatus.OK and "etag" not in headers
            if fresh and kind.partition(";")[0] == JSON:
                self._start = message
            else:
                await self._send(message)
        elif message["type"] == "http.response.body" and self._start is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._whole(self._start)
        elif message["type"] == "http.response.body" and self._without_body:
            await self._send({**message, "body": b""})
        else:
            await self._send(message)

    async def _whole(self, start: Message) -> None:
        tag = f'"{hashlib.sha256(self._body).hexdigest()[:32]}"'
        headers = MutableHeaders(raw=list(start["headers"]))
        headers["ETag"] = tag
        headers.setdefault("Cache-Control", "no-cache")
        status, body = start["status"], self._body
        if is_known(self._asked.get("if-none-match", ""), tag):
            status, body = HTTPStatus.NOT_MODIFIED, b""
            del headers["content-length"], headers["content-type"]
        await self._send({**start, "status": int(status), "headers": headers.raw})
        await self._send(
            {"type": "http.response.body", "body": b"" if self._without_body else body}
        )


def is_known(known: str, tag: str) -> bool:
    """Return whether a client's `If-None-Match` names the tag; weak ones are compared as strong."""
    tags = [each.strip().removeprefix("W/") for each in known.split(",")]
    return "*" in tags or tag in tags
