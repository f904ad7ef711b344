from __future__ import annotations

import json
import logging
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Event
from server.app import create_app
from server.settings import Settings
from server.store import Store
from server.store.campaigns import pause_campaign, resume_campaign
from tests.pace import QUICK
from tests.patience import PATIENCE_S
from tests.server.api.conftest import Live, serving
from tests.server.asking import created, with_trials


@contextmanager
def stream(
    live: Live, path: str, headers: dict[str, str] | None = None, **params: Any
) -> Iterator[Iterator[Event]]:
    """The events of a stream as they come; each is checked against its frame."""
    with httpx2.stream(
        "GET",
        live.url + path,
        headers=live.headers | (headers or {}),
        params=params,
        timeout=PATIENCE_S,
        trust_env=False,
    ) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        assert next(lines) == ": connected"
        yield events(lines)


def events(lines: Iterator[str]) -> Iterator[Event]:
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and name:
            fields[name] = value
        elif "data" in fields:
            event = Event.model_validate(json.loads(fields["data"]))
            assert fields["id"] == str(event.id)
            assert fields["event"] == event.kind
            yield event
            fields = {}


def take(source: Iterator[Event], count: int) -> list[Event]:
    return [next(source) for _ in range(count)]


def test_a_campaigns_stream_starts_at_its_beginning_and_resumes(live: Live, store: Store) -> None:
    campaign = created(store)
    created(store)
    with_trials(store, campaign, 5)
    path = f"/api/v1/campaigns/{campaign.id}/events"
    with stream(live, path) as found:
        first = take(found, 3)
    assert [event.kind for event in first] == ["campaign", "trial", "trial"]
    with stream(live, path, {"Last-Event-ID": str(first[-1].id)}) as found:
        rest = take(found, 3)
        with store.transaction() as session:
            pause_campaign(session, campaign.id)
        [paused] = take(found, 1)
    assert paused.campaign is not None
    assert paused.campaign.state == "paused"
    ids = [event.id for event in (*first, *rest, paused)]
    assert ids == sorted(set(ids)), "without a gap or a double"
    assert len(ids) == 7
    with stream(live, path, after=first[-1].id) as found:
        assert take(found, 4) == [*rest, paused]


def test_the_stream_of_all_campaigns_begins_now(live: Live, store: Store) -> None:
    campaign = created(store)
    with stream(live, "/api/v1/events") as found:
        with store.transaction() as session:
            pause_campaign(session, campaign.id)
        other = created(store)
        assert [event.campaign_id for event in take(found, 2)] == [campaign.id, other.id]
    with stream(live, "/api/v1/events", after=0) as found:
        assert len(take(found, 3)) == 3


def test_a_stream_survives_a_restart_of_the_service(
    sqlite_settings: Settings, store: Store
) -> None:
    campaign = created(store)
    path = f"/api/v1/campaigns/{campaign.id}/events"
    with serving(create_app(sqlite_settings, pace=QUICK)) as live, stream(live, path) as found:
        [first] = take(found, 1)
    with store.transaction() as session:
        pause_campaign(session, campaign.id)
        resume_campaign(session, campaign.id)
    with (
        serving(create_app(sqlite_settings, pace=QUICK)) as live,
        stream(live, path, {"Last-Event-ID": str(first.id)}) as found,
    ):
        assert [event.id for event in take(found, 2)] == [first.id + 1, first.id + 2]


def test_streams_end_when_the_service_stops(live: Live, store: Store) -> None:
    campaign = created(store)
    with stream(live, f"/api/v1/campaigns/{campaign.id}/events") as found:
        take(found, 1)
        live.stop()
        assert list(found) == [], "it ends in order, and is not cut off"
    live.thread.join(PATIENCE_S)
    assert not live.thread.is_alive()


def test_a_viewer_who_goes_away_leaves_no_error_behind(
    app: FastAPI, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    campaign = created(store)
    with_trials(store, campaign, 60)
    logger = logging.getLogger("uvicorn.error")
    with serving(app) as live:
        httpx2.get(live.url + "/readyz", trust_env=False)
        logger.addHandler(caplog.handler)  # which the server's start would take away
        host, _, port = live.url.rpartition("/")[2].partition(":")
        request = f"GET /api/v1/campaigns/{campaign.id}/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
        viewers = [socket.create_connection((host, int(port))) for _ in range(60)]
        for viewer in viewers:
            viewer.sendall(request.encode())
        for viewer in viewers:
            viewer.recv(1)
            # Closed so, a connection is reset and not ended in order.
            viewer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            viewer.close()
        with stream(live, f"/api/v1/campaigns/{campaign.id}/events") as found:
            assert len(take(found, 3)) == 3
    logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def test_a_stream_ends_after_its_life(sqlite_settings: Settings) -> None:
    short = replace(QUICK, stream_life_s=0.3)
    with (
        serving(create_app(sqlite_settings, pace=short)) as live,
        stream(live, "/api/v1/events") as found,
    ):
        assert list(found) == []


def test_what_is_no_event_or_campaign_is_refused(shared_client: TestClient) -> None:
    for given in ("x", "-1", "1.5", "²"):
        headers = [(b"Last-Event-ID", given.encode())]
        answer = shared_client.get("/api/v1/events", headers=headers)
        assert answer.status_code == 422, given
        assert answer.json()["errors"][0]["field"] == "Last-Event-ID"
    answer = shared_client.get("/api/v1/campaigns/7/events")
    assert answer.status_code == 404
    assert answer.json()["detail"] == "there is no campaign 7"
