"""What one client may ask of a service, seen on a real socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress

import httpx2
import pytest

from autotune.schemas.users import UserCreate
from autotune.schemas.validation import MOST_UNKNOWN
from server.api import limits
from server.api.limits import AT_ONCE, BODY, MOST_PARAMETERS, WAITING
from server.app import create_app
from server.settings import Settings
from server.store.users import add_user
from tests.pace import QUICK
from tests.patience import PATIENCE_S
from tests.server.api.conftest import Live, serving
from tests.server.asking import body

PIECE = b" " * 100_000


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A service of one user."""
    folder = tmp_path_factory.mktemp("strict")
    settings = Settings(data_dir=folder)
    with serving(create_app(settings, pace=QUICK)) as live:
        yield live


@pytest.fixture
def client(strict: Live) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=strict.url, headers=strict.headers, trust_env=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Live, dict[str, str]]]:
    """A service that two users share, and their tokens."""
    folder = tmp_path_factory.mktemp("crowded")
    settings = Settings(data_dir=folder, group=True)
    app = create_app(settings, pace=QUICK)
    with app.state.store.transaction() as session:
        tokens = {
            name: add_user(session, UserCreate(name=name, scope="read")) for name in ("rob", "sue")
        }
    with serving(app) as live:
        yield live, tokens


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_in_a_sentence(
    client: httpx2.Client, chunked: bool
) -> None:
    pieces = [PIECE] * (BODY.size // len(PIECE) + 1)
    content = iter(pieces) if chunked else b"".join(pieces)
    answer = client.post("/api/v1/campaigns", content=content)
    assert answer.status_code == 413
    assert answer.json()["detail"] == "a request has 2 MB at most"
    assert client.post("/api/v1/predictions", json=body()).status_code == 422  # it goes on


def test_a_declared_length_is_refused_before_it_is_sent(strict: Live) -> None:
    lines = ["POST /api/v1/campaigns HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 60000000"]
    lines += [f"{name}: {value}" for name, value in strict.headers.items()]
    with connected(strict) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")


def test_more_streams_than_allowed_are_refused_for_now(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_STREAMS", 2)
    with ExitStack() as streams:
        for _ in range(2):
            stream = streams.enter_context(client.stream("GET", "/api/v1/events"))
            assert stream.status_code == 200
        refused = client.get("/api/v1/events")
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) > 0
        assert "2 streams of events are open" in refused.json()["detail"]


@pytest.mark.parametrize("place", ["body", "model", "space", "query"])
def test_a_few_of_many_unknown_names_are_reported(client: httpx2.Client, place: str) -> None:
    """With the nearest names to each, 1500 took a second, wherever they stood."""
    most = MOST_PARAMETERS if place == "query" else 1500
    names = {f"tensor_paralel{number}": 1 for number in range(most)}
    bodies = {
        "body": names,
        "model": body(model=names),
        "space": body(space=names),
    }
    if place == "query":
        answer = client.get("/api/v1/campaigns", params=names)
    else:
        answer = client.post("/api/v1/campaigns", json=bodies[place])
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    reported = [error for error in errors if "tensor_paralel" in error["field"]]
    assert len(reported) == MOST_UNKNOWN
    if place != "query":
        left = next(error for error in errors if error["field"] == "unknown fields")
        assert left["value"] == most
    assert len(answer.content) < 10_000


def test_names_beyond_any_use_are_refused_unread(client: httpx2.Client) -> None:
    fields = {f"k{number}": 1 for number in range(int(BODY.fields) + 1)}
    answer = client.post("/api/v1/campaigns", json={"space": {"settings": fields}})
    assert (answer.status_code, answer.json()["errors"]) == (413, [])
    assert answer.json()["detail"] == "a request has 2000 fields at most"
    answer = client.get("/api/v1/campaigns", params=dict.fromkeys(fields, "1"))
    assert answer.json()["detail"] == "a query has 100 parameters at most"
    answer = client.post("/api/v1/campaigns", json={"x" * 100_000: 1})
    assert answer.status_code == 422
    assert len(answer.content) < 2000


def test_one_user_cannot_take_the_turns_of_others(crowded: tuple[Live, dict[str, str]]) -> None:
    live, tokens = crowded
    with ExitStack() as held:
        for _ in range(AT_ONCE + WAITING):
            unfinished = held.enter_context(connected(live))
            head = ["POST /api/v1/plans HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 9"]
            head.append(f"Authorization: Bearer {tokens['rob']}")
            unfinished.sendall("\r\n".join([*head, "", "{"]).encode())
        refused = when(live, tokens["rob"], 429)
        assert int(refused.headers["Retry-After"]) > 0
        assert refused.json()["detail"].startswith("32 of your requests are under way")
        assert when(live, tokens["sue"], 200).json()["items"] == []
    when(live, tokens["rob"], 200)


def when(live: Live, token: str, status: int) -> httpx2.Response:
    """Return the answer to a user's GET once it has this status."""
    headers = {"Authorization": f"Bearer {token}"}
    ends = time.monotonic() + PATIENCE_S
    with httpx2.Client(base_url=live.url, headers=headers, trust_env=False, timeout=1) as client:
        while time.monotonic() < ends:
            with suppress(httpx2.TimeoutException):  # it waits for its turn, and others follow it
                answer = client.get("/api/v1/campaigns")
                if answer.status_code == status:
                    return answer
            time.sleep(0.02)
    raise AssertionError(f"no answer {status}")


def test_streams_of_one_user_leave_those_of_others(
    crowded: tuple[Live, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MOST_STREAMS_OF_USER", 2)
    live, tokens = crowded

    def streamed(client: httpx2.Client, name: str) -> httpx2.Response:
        headers: Mapping[str, str] = {"Authorization": f"Bearer {tokens[name]}"}
        return streams.enter_context(client.stream("GET", "/api/v1/events", headers=headers))

    with httpx2.Client(base_url=live.url, trust_env=False) as client, ExitStack() as streams:
        assert [streamed(client, "rob").status_code for _ in range(3)] == [200, 200, 429]
        assert streamed(client, "sue").status_code == 200


def connected(live: Live) -> socket.socket:
    host, _, port = live.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)
