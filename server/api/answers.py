"""Responses about campaigns: encoded and compressed once, with an ETag."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from server.api.campaign_cache import CampaignCache
from server.api.conditional import JSON, is_known
from server.cache import Cache

ANSWERS = 400
"""A hundred kilobytes each at most, compressed."""

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

    def __init__(self, campaigns: CampaignCache) -> None:
        self._campaigns = campaigns
        self._cache: Cache[EncodedAnswer] = Cache(ANSWERS)

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
            besides: returns what else the body depends on, beside events.
            by_query: whether the body depends on the query string.

        Raises:
            NotFound: there is no such campaign.
        """
        event = self._campaigns.last_event(campaign_id)
        query = request.url.query if by_query else ""
        answer = self._cache.of(
            (campaign_id, request.url.path, query),
            lambda: EncodedAnswer.of(make(event), media_type=media_type),
            version=(event, besides(event)),
        )
        return answer.response(request, headers)
