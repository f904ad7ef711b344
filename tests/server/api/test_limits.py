"""What one client may ask of a service, seen on a real socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx2
import pytest

from server.api.limits import MOST_BODY_BYTES
from server.app import create_app
from server.settings import Settings
from tests.server.api.conftest import Live, serving
from tests.server.asking import body

PIECE = b" " * 100_000


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """With little patience, and two streams at a time."""
    folder = tmp_path_factory.mktemp("strict")
    settings = Settings(data_dir=folder, request_limit_s=0.3, most_streams=2, stream_poll_s=0.05)
    with serving(create_app(settings)) as live:
        yield live


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_in_a_sentence(strict: Live, chunked: bool) -> None:
    pieces = [PIECE] * (MOST_BODY_BYTES // len(PIECE) + 1)
    with httpx2.Client(base_url=strict.url, headers=strict.headers, trust_env=False) as client:
        content = iter(pieces) if chunked else b"".join(pieces)
        answer = client.post("/api/v1/campaigns", content=content)
        assert answer.status_code == 413
        assert answer.json()["detail"] == "a request has 2 MB at most"
        assert client.post("/api/v1/spaces", json=body()).status_code == 422  # it goes on


def test_a_declared_length_is_refused_before_it_is_sent(strict: Live) -> None:
    lines = ["POST /api/v1/campaigns HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 60000000"]
    lines += [f"{name}: {value}" for name, value in strict.headers.items()]
    with connected(strict) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: 127.",
        b"POST /api/v1/spaces HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{",
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /h",
    ],
    ids=["nothing", "half a head", "half a body", "half a second request"],
)
def test_a_request_that_is_never_finished_is_given_up(strict: Live, sent: bytes) -> None:
    with connected(strict) as client:
        client.sendall(sent)
        read_to_the_end(client)


def test_more_streams_than_allowed_are_refused_for_now(strict: Live) -> None:
    with (
        httpx2.Client(base_url=strict.url, headers=strict.headers, trust_env=False) as client,
        ExitStack() as streams,
    ):
        for _ in range(2):
            stream = streams.enter_context(client.stream("GET", "/api/v1/events"))
            assert stream.status_code == 200
        refused = client.get("/api/v1/events")
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert "2 streams of events are open" in refused.json()["detail"]


def connected(live: Live) -> socket.socket:
    host, _, port = live.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def read_to_the_end(client: socket.socket) -> None:
    try:
        while client.recv(4096):
            pass
    except ConnectionResetError:
        pass
