"""Requests over one connection pool, retried and parsed; the stream of a campaign's events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import httpx2
from pydantic import BaseModel, TypeAdapter, ValidationError

from autotune.client.location import Location
from autotune.client.patience import (
    LOST_ON_THE_WAY,
    REFUSED_FOR_NOW,
    Patience,
    settings,
    timeout,
    unreachable,
)
from autotune.errors import ApiError
from autotune.schemas.campaigns import Campaign, CampaignPage, Event
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import TrialPage

T = TypeVar("T")
Page = TypeVar("Page", CampaignPage, TrialPage)
PREFIX = "/api/v1"
REPEATABLE = frozenset({"GET", "DELETE"})
"""Sending these twice does no more than sending them once."""

Parameters = Mapping[str, str | int | None]
"""Query parameters; a parameter that is None is not sent."""

ACTIVE = frozenset({CampaignState.QUEUED, CampaignState.RUNNING, CampaignState.CONFIRMING})
AT_REST = frozenset(CampaignState) - ACTIVE
SILENCE_S = 60.0
"""The service sends at least a comment every 15 s: this long without is a broken connection."""
LAST_WORDS_S = 1.0
"""Once the campaign is at rest: events stored already are sent at once, so after this long without
one there is none left."""
SHORTEST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 1.0


class Transport:
    """Sends requests, with retries.

    Every method raises `ServiceUnreachable` if the service does not answer, and `ApiError` if it
    refuses or answers with something unexpected.
    """

    def __init__(self, location: Location, patience: Patience) -> None:
        self.base_url = location.url
        through = (
            httpx2.HTTPTransport(uds=location.socket, verify=False) if location.socket else None
        )
        self._http = httpx2.Client(**settings(location), transport=through)
        self._patience = patience

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, answer: type[T], params: Parameters | None = None) -> T:
        return read(self.send("GET", path, params=params), answer)

    def pages(self, path: str, answer: type[Page], params: Parameters) -> Iterator[Page]:
        """Yield the pages of a listing, each when it is needed."""
        page = self.get(path, answer, params)
        yield page
        while page.next is not None:
            page = self.get(path, answer, {**params, "cursor": page.next})
            yield page

    def content(self, path: str, params: Parameters | None = None) -> bytes:
        """Return the body of a file."""
        return self.send("GET", path, params=params).content

    def post(
        self,
        path: str,
        answer: type[T],
        document: BaseModel | None = None,
        *,
        params: Parameters | None = None,
        key: str | None = None,
    ) -> T:
        """Send a document; with an idempotency `key` it may be sent again after a lost answer."""
        return read(self.send("POST", path, params=params, document=document, key=key), answer)

    def upload(self, path: str, answer: type[T], content: bytes, params: Parameters) -> T:
        """Send the content of a file."""
        return read(self.send("POST", path, params=params, content=content), answer)

    def put(self, path: str, answer: type[T], document: BaseModel) -> T:
        return read(self.send("PUT", path, document=document), answer)

    def patch(self, path: str, answer: type[T], document: BaseModel) -> T:
        return read(self.send("PATCH", path, document=document), answer)

    def delete(self, path: str) -> None:
        self.send("DELETE", path)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Parameters | None = None,
        document: BaseModel | None = None,
        content: bytes | None = None,
        key: str | None = None,
    ) -> httpx2.Response:
        """Return the answer to a request, which is retried as `patience` allows."""
        headers = {"Idempotency-Key": key} if key else {}
        if document is not None:
            headers["Content-Type"] = "application/json"
            content = document.model_dump_json(exclude_unset=True).encode()
        present = {name: value for name, value in (params or {}).items() if value is not None}
        repeatable = method in REPEATABLE or key is not None
        attempt = 1
        while True:
            try:
                response = self._http.request(
                    method, PREFIX + path, params=present, headers=headers, content=content
                )
            except httpx2.TransportError as error:
                wait_s = self._patience.after_error(error, attempt=attempt, repeatable=repeatable)
                if wait_s is None:
                    raise unreachable(self.base_url, error) from error
            else:
                wait_s = self._patience.after_answer(
                    response, attempt=attempt, repeatable=repeatable
                )
                if wait_s is None:
                    if not response.is_success:
                        raise refusal(response)
                    return response
            time.sleep(wait_s)
            attempt += 1

    def follow(self, follower: Follower) -> Iterator[Event]:
        """Yield events until the follower has read them all; broken streams are resumed."""
        path = f"{PREFIX}/campaigns/{follower.campaign_id}/events"
        while not follower.ended:
            try:
                with self._http.sse(
                    path, headers=follower.headers(), timeout=follower.timeout()
                ) as source:
                    if follower.refused(source.response):
                        source.response.read()
                        raise refusal(source.response)
                    for message in source:
                        event = follower.take(message)
                        if event is not None:
                            yield event
                        if follower.turned:
                            break
            except httpx2.TransportError as error:
                follower.lost(error, self._patience, base_url=self.base_url)
            time.sleep(follower.wait_s)


class Follower:
    """A reader's position in the events of a campaign, and whether it has read them all.

    Every event has the campaign's *current* state, including old events that are read again. A
    campaign at rest is therefore not the end: the stream is opened once more and read until it is
    silent.

    Attributes:
        ended: the campaign is at rest and all events were read.
        turned: the campaign came to rest within this stream, which should be closed.
        wait_s: seconds to wait before the next stream.
    """

    def __init__(self, campaign: Campaign, *, after: int) -> None:
        self.ended = False
        self.turned = False
        self.wait_s = 0.0
        self.campaign_id = campaign.id
        self._rests = campaign.state in AT_REST
        self._pending = campaign.pending
        self._last_id = str(after)
        self._failures = 0

    def headers(self) -> dict[str, str]:
        """Return the headers of the next stream, which resumes after the last event."""
        self.turned = False
        self.wait_s = SHORTEST_PAUSE_S
        return {"Last-Event-ID": self._last_id}

    def timeout(self) -> httpx2.Timeout:
        return timeout(LAST_WORDS_S if self._at_rest else SILENCE_S)

    def refused(self, response: httpx2.Response) -> bool:
        """Return whether the answer is a permanent refusal; a temporary one counts as a broken
        stream."""
        if response.status_code in REFUSED_FOR_NOW | LOST_ON_THE_WAY:
            raise httpx2.RemoteProtocolError(f"answered with {response.status_code}")
        return not response.is_success

    def take(self, message: httpx2.ServerSentEvent) -> Event | None:
        """Return the event of a message; None for messages that only keep the connection alive."""
        if not message.id or not message.data:
            return None
        event = Event.model_validate_json(message.data, extra="ignore")
        self._last_id = message.id
        self._failures = 0
        before = self._at_rest
        if event.campaign is not None:
            self._rests = event.campaign.state in AT_REST
            self._pending = event.campaign.pending
        elif event.trial is not None and event.trial.state != TrialState.PENDING:
            self._pending -= 1
        self.turned = self._at_rest and not before
        return event

    @property
    def _at_rest(self) -> bool:
        return self._rests and self._pending <= 0

    def lost(self, error: httpx2.TransportError, patience: Patience, *, base_url: str) -> None:
        """Count a broken or silent stream. Raises ServiceUnreachable after too many."""
        if self._at_rest and isinstance(error, httpx2.ReadTimeout):
            self.ended = True
            return
        self._failures += 1
        if self._failures > patience.stream_attempts:
            raise unreachable(base_url, error) from error
        self.wait_s = min(LONGEST_PAUSE_S, patience.pause_s(self._failures))


def read(response: httpx2.Response, answer: type[T]) -> T:
    """Return the body as `answer`; unknown fields are ignored."""
    try:
        return TypeAdapter(answer).validate_json(response.content, extra="ignore")
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "its body"
        problem = {
            "title": "Answer not understood",
            "detail": f"what answers at {response.url} is no autotune service of this "
            f"version: {where}: {first['msg']}",
        }
        raise ApiError(response.status_code, problem) from error


def refusal(response: httpx2.Response) -> ApiError:
    """Return the error of a refused request, also if the body is not a problem document."""
    phrase = httpx2.codes.get_reason_phrase(response.status_code)
    problem: dict[str, Any] = {
        "title": phrase,
        "status": response.status_code,
        "detail": f"{response.request.method} {response.url} was answered with "
        f"{response.status_code} {phrase}",
    }
    with suppress(ValueError):  # a proxy's page, for one
        document = response.json()
        problem |= document if isinstance(document, dict) else {}
    return ApiError(response.status_code, problem)


def listed(numbers: Sequence[int]) -> str | None:
    """Return numbers as one query parameter, comma-separated; None for an empty list."""
    return ",".join(map(str, numbers)) or None
