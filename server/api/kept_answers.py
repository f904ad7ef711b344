"""Answers about campaigns as they are sent, made once for all who ask."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.responses import Response
from pydantic import BaseModel

from server.api.conditional import JSON, is_known
from server.api.kept import Kept
from server.api.kept_campaigns import KeptCampaigns

ANSWERS = 400
"""A hundred kilobytes each at most, compressed."""

COMPRESSION = 5
"""A tenth larger than what the most work comes to, in half the time."""


@dataclass(frozen=True, kw_only=True)
class KeptAnswer:
    """An answer as it is sent.

    Attributes:
        compressed: its content with gzip.
        tag: changes with the content.
    """

    compressed: bytes
    tag: str
    media_type: str

    @classmethod
    def of(cls, content: bytes, *, media_type: str = JSON) -> KeptAnswer:
        tag = hashlib.sha256(content).hexdigest()[:32]
        compressed = gzip.compress(content, COMPRESSION, mtime=0)
        return cls(compressed=compressed, tag=tag, media_type=media_type)

    def response(self, request: Request, headers: Mapping[str, str] | None = None) -> Response:
        """Return it, compressed where that is understood; nothing where it is known already."""
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


def chart_as_json(chart: Mapping[str, Any]) -> bytes:
    """Return a chart in Vega-Lite as it is sent."""
    return json.dumps(chart, ensure_ascii=False, separators=(",", ":")).encode()


class KeptAnswers:
    """An answer about a campaign is kept, by its address, until something happens in that."""

    def __init__(self, campaigns: KeptCampaigns) -> None:
        self._campaigns = campaigns
        self._kept: Kept[KeptAnswer] = Kept(ANSWERS)

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
        """Return the answer to a request.

        Args:
            make: returns its content as the campaign stands after an event, its last.
            besides: returns what the content follows from that has no event.
            by_query: whether it follows from what the address asks for behind its path.

        Raises:
            NotFound: there is no such campaign.
        """
        event = self._campaigns.last_event(campaign_id)
        asked = request.url.query if by_query else ""
        answer = self._kept.of(
            (campaign_id, request.url.path, asked),
            lambda: KeptAnswer.of(make(event), media_type=media_type),
            version=(event, besides(event)),
        )
        return answer.response(request, headers)
