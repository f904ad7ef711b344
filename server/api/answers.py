"""How responses are sent: HEAD for every GET, 304 for what a client has cached (RFC 9110, 13.1.2),
compression; those about campaigns are encoded and compressed once."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.campaign_cache import CampaignCache
from server.cache import Cache

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

    def __init__(self, send: Send, requested: Headers, *, without_body: bool) -> None:
        self._send = send
        self._requested = requested
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
        if is_known(self._requested.get("if-none-match", ""), tag):
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
    compressed response can reveal a secret next to text that an attacker chose (BREACH).
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._gzip = GZipMiddleware(app, minimum_size=LARGE_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope["type"] == "http" and scope["method"] == "GET"
        await (self._gzip if reads else self.app)(scope, receive, send)


ANSWER = 10
"""Size of a response in the cache: a hundred kilobytes at most, compressed."""

COMPRESSION = 5
"""A tenth larger than at the highest level, in half the time."""


@dataclass(frozen=True, kw_only=True)
class EncodedAnswer:
    """A response body.

    Attributes:
        compressed: the body with gzip.
        tag: changes with the body.
    """

    compressed: bytes
    tag: str
    media_type: str

    @classmethod
    def of(cls, content: bytes, *, media_type: str) -> EncodedAnswer:
        tag = hashlib.sha256(content).hexdigest()[:32]
        compressed = gzip.compress(content, COMPRESSION, mtime=0)
        return cls(compressed=compressed, tag=tag, media_type=media_type)

    def response(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """Return the response to a request: compressed if accepted, 304 if the client has it."""
        zipped = "gzip" in request.headers.get("accept-encoding", "")
        tag = f'"{self.tag}-gzip"' if zipped else f'"{self.tag}"'
        sent = {"Cache-Control": "no-cache", "Vary": "Accept-Encoding", "ETag": tag}
        sent |= headers or {}
        if is_known(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=sent)
        if zipped:
            sent["Content-Encoding"] = "gzip"
        content = self.compressed if zipped else gzip.decompress(self.compressed)
        return Response(content, media_type=self.media_type, headers=sent)


def as_json(model: BaseModel) -> bytes:
    """Return a resource as the API sends it."""
    return model.model_dump_json(by_alias=True).encode()


class Answers:
    """Caches responses about campaigns by their URL, each until its campaign's next event."""

    def __init__(self, campaigns: CampaignCache, cache: Cache) -> None:
        self._campaigns = campaigns
        self._cache = cache

    def of(
        self,
        request: Request,
        campaign_id: int,
        make: Callable[[int], bytes],
        *,
        media_type: str = JSON,
        headers: Mapping[str, str] | None = None,
        besides: Callable[[int], Hashable] = lambda _: None,
        by_query: bool = True,
    ) -> Response:
        """Return the response to a request.

        Args:
            make: returns the body, given the campaign's last event.
            besides: returns what else the body depends on, besides events.
            by_query: whether the body depends on the query string.

        Raises:
            NotFound: there is no such campaign.
        """
        event = self._campaigns.last_event(campaign_id)
        query = request.url.query if by_query else ""
        answer = self._cache.of(
            ("answer", campaign_id, request.url.path, query),
            lambda: EncodedAnswer.of(make(event), media_type=media_type),
            version=(event, besides(event)),
            size=ANSWER,
        )
        return answer.response(request, headers)
