"""How responses are sent: HEAD for every GET, 304 for what a client has cached (RFC 9110, 13.1.2),
compression."""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RESOURCES = "/api/v1/"
STREAMS = "/events"
JSON = "application/json"
ETAG = {
    "description": "Follows from the answer; to be sent as `If-None-Match`.",
    "schema": {"type": "string"},
}
"""The header in the API reference."""
LARGE_BYTES = 8_000
LEVEL = 1
"""A quarter of the time of level 5 for 20 % more bytes: a page of 100 kB becomes 13 kB in half a
millisecond."""


class ConditionalAnswers:
    """Middleware that adds an ETag, a hash of the body, to JSON responses without one."""

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
            scope["route"] = within.get("route")  # for the metrics


class _Answer:
    """Sends one response: JSON once it is complete, anything else as it comes."""

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
    """Return whether `If-None-Match` contains the tag; weak tags are compared as strong ones."""
    tags = [each.strip().removeprefix("W/") for each in known.split(",")]
    return "*" in tags or tag in tags


class Compression:
    """Middleware that compresses large responses to GET, event streams excepted.

    Responses to POST, the only ones with tokens and keys, are not compressed: the length of a
    compressed response can reveal a secret beside text that an attacker chose (BREACH).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._gzip = GZipMiddleware(app, minimum_size=LARGE_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope["type"] == "http" and scope["method"] == "GET"
        await (self._gzip if reads else self.app)(scope, receive, send)
