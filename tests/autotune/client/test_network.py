"""The client on networks that break: whom it asks, how often, and when it gives up."""

from __future__ import annotations

import socket
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.client.location import locate
from autotune.client.patience import Patience, retry_after_s, settings
from autotune.client.transport import Follower, Transport
from autotune.errors import ApiError, ServiceUnreachable
from search_spaces.errors import InvalidInput
from tests.autotune.client.conftest import CAMPAIGN
from tests.flaky_proxy import flaky_proxy
from tests.serving import Served

QUICK = Patience(first_wait_s=0.01)
pytestmark = pytest.mark.xdist_group("client")  # one service for all


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", "any")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    patience = Patience(attempts=2, first_wait_s=0.01)
    with (
        Client(f"http://127.0.0.1:{port}", patience=patience) as nobody,
        pytest.raises(ServiceUnreachable, match=rf"{port} \(Connection refused\).*autotune serve"),
    ):
        nobody.models()


@pytest.mark.parametrize(
    ("status", "content", "match"),
    [
        (200, b"hello", "no autotune service of this version"),
        (404, b"hello", "was answered with 404 Not Found"),
        (404, b"{}", "was answered with 404 Not Found"),
    ],
)
def test_another_web_server_is_not_taken_for_the_service(
    service: Served, status: int, content: bytes, match: str
) -> None:
    kind = b"application/json" if content == b"{}" else b"text/html"
    answer = b"HTTP/1.1 %d -\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s"
    with (
        flaky_proxy(service.url) as (url, proxy),
        Client(url, token_file=service.token_file) as connected,
    ):
        proxy.refusals = [answer % (status, kind, len(content), content)]
        with pytest.raises(ApiError, match=match):
            connected.models()


def test_a_create_whose_answer_was_lost_makes_one_campaign(service: Served) -> None:
    with Client(service.url) as direct:
        before = len(list(direct.campaigns()))
    with flaky_proxy(service.url) as (url, proxy):
        proxy.cuts = [0, 0]
        with Client(
            url, token_file=service.token_file, patience=Patience(first_wait_s=0.01)
        ) as retrying:
            handle = retrying.create(**CAMPAIGN)
        posts = [head for head in proxy.requests if head.startswith("POST")]
    with Client(service.url) as direct:
        assert len(list(direct.campaigns())) == before + 1
        direct.campaign(handle.id).cancel()
    keys = [
        line for head in posts for line in head.splitlines() if "idempotency-key" in line.lower()
    ]
    assert len(posts) == 3
    assert len(set(keys)) == 1


def test_a_request_that_may_not_be_repeated_is_not(service: Served) -> None:
    key = service.token_file
    with (
        flaky_proxy(service.url) as (url, proxy),
        Client(url, token_file=key) as connected,
    ):
        proxy.cuts = [0]
        with pytest.raises(ServiceUnreachable):
            connected.plan(model="tiny", machine="frontier")
    assert len(proxy.requests) == 1


def test_retry_after_is_honoured(service: Served) -> None:
    busy = b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with flaky_proxy(service.url) as (url, proxy):
        proxy.refusals = [busy, busy]
        with Client(
            url, token_file=service.token_file, patience=Patience(first_wait_s=30)
        ) as connected:
            assert connected.models()
    assert len(proxy.requests) == 3


@pytest.mark.parametrize(
    ("header", "expected_s"),
    [
        ("7", 7.0),
        ("Fri, 01 Jan 2027 00:00:10 GMT", 10.0),
        ("Fri, 01 Jan 2026 00:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(header: str, expected_s: float | None) -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert retry_after_s({"retry-after": header}, now=now) == expected_s


def test_patience_has_an_end() -> None:
    patience = Patience(attempts=2, longest_wait_s=10)

    def wait_s(
        status: int, after: str = "5", *, attempt: int = 1, repeatable: bool = True
    ) -> float | None:
        answer = httpx2.Response(status, headers={"Retry-After": after})
        return patience.after_answer(answer, attempt=attempt, repeatable=repeatable)

    assert wait_s(503) == 5.0
    assert wait_s(503, attempt=2) is None
    assert wait_s(503, "11") is None
    assert wait_s(404) is None
    assert wait_s(502) == 5.0
    assert wait_s(502, repeatable=False) is None
    assert 0 < patience.pause_s(1) < patience.pause_s(3)


def test_a_stream_cut_at_any_place_loses_and_repeats_nothing(
    service: Served, finished: CampaignHandle
) -> None:
    expected = [event.id for event in finished.watch()]
    with flaky_proxy(service.url) as (url, proxy):
        proxy.cuts = [6_000, 300, 4_000, 0, 5_000, 7_000]
        with Client(
            url, token_file=service.token_file, patience=Patience(first_wait_s=0.01)
        ) as reader:
            assert [event.id for event in reader.campaign(finished.id).watch()] == expected
        assert not proxy.cuts


def test_watching_ends_when_the_service_stays_away(
    service: Served, finished: CampaignHandle
) -> None:
    patience = Patience(attempts=1, first_wait_s=0.01, stream_attempts=2)
    with flaky_proxy(service.url) as (url, proxy):
        proxy.cuts = [6_000]
        transport = Transport(locate(url, token_file=service.token_file), patience)
        events = transport.follow(Follower(finished.campaign, after=0))
        next(events)
    with closing(transport), pytest.raises(ServiceUnreachable):
        list(events)


def test_address_from_the_environment_and_proxy_for_others_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AUTOTUNE_URL", "http://login.example:1/")
    for url, base_url, proxied in (
        (None, "http://login.example:1", True),
        ("http://10.0.0.1:1", "http://10.0.0.1:1", True),
        ("http://127.0.0.1:1", "http://127.0.0.1:1", False),
        ("http://localhost:1", "http://127.0.0.1:1", False),
        ("http://[::1]:1", "http://[::1]:1", False),
        ("unix:/tmp/x", "http://localhost", False),
    ):
        found = settings(locate(url, token_file=None))
        assert (found["base_url"], found["trust_env"]) == (base_url, proxied)


@pytest.mark.parametrize("url", ["http://tuning.example:8765", "http://10.0.0.7:8765"])
def test_no_token_is_sent_where_others_could_read_it(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", "secret")
    with pytest.raises(InvalidInput, match=r"HTTP is not encrypted.*AUTOTUNE_INSECURE_HTTP"):
        Client(url)
    assert locate(url.replace("http:", "https:"), token_file=None).token == "secret"
    assert locate("http://localhost:8765", token_file=None).token == "secret"
    monkeypatch.setenv("AUTOTUNE_INSECURE_HTTP", "true")
    assert locate(url, token_file=None).token == "secret"


def test_a_token_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content, token in (("abc\n", "abc"), ('{"token": "abc", "more": 1}', "abc")):
        file.write_text(content)
        assert locate("http://127.0.0.1:1", token_file=file).token == token
    for content in ("", "two words", "{", "{}", '{"token": 1}', "é"):
        file.write_text(content)
        with pytest.raises(InvalidInput, match="token"):
            locate("http://127.0.0.1:1", token_file=file)
