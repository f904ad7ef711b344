from __future__ import annotations

from socket import gethostname

import pytest
from fastapi.testclient import TestClient

from server.auth.origin import TrustedHosts
from server.settings import Settings
from tests.server.asking import body


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765"])
def test_the_service_answers_under_its_own_names(client: TestClient, host: str) -> None:
    assert client.get("/healthz", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[", "a:b:c"])
def test_a_name_made_to_resolve_to_loopback_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/api/v1/campaigns", headers={"Host": host})
    assert answer.status_code == 421
    error = answer.json()["errors"][0]
    assert error["field"] == "Host"
    assert "localhost" in error["valid"]


def test_further_names_can_be_allowed() -> None:
    hosts = TrustedHosts.of(Settings(allowed_hosts=("Login3.cluster",)))
    assert "login3.cluster" in hosts
    assert "10.0.0.7" not in hosts


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "10.0.0.7"])
def test_a_service_on_the_network_is_no_other_ones_name(bound: str) -> None:
    hosts = TrustedHosts.of(Settings(host=bound))
    assert "evil.example" not in hosts
    assert all(
        name in hosts for name in ("localhost", "10.0.0.7", "fd00::7", gethostname().lower())
    )


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:81",
        "http://localhost",
        "https://127.0.0.1:80",
    ],
)
def test_another_sites_page_changes_nothing(client: TestClient, origin: str) -> None:
    headers = {"Origin": origin, "Host": "127.0.0.1:80"}
    answer = client.post("/api/v1/campaigns", json=body(), headers=headers)
    assert answer.status_code == 403
    assert answer.json()["errors"][0]["field"] == "Origin"
    assert client.get("/api/v1/campaigns").json()["items"] == []


def test_the_services_own_pages_and_other_programs_may(client: TestClient) -> None:
    own = {"Origin": "http://localhost:8765", "Host": "localhost:8765"}
    assert client.post("/api/v1/campaigns", json=body(), headers=own).status_code == 201
    assert client.post("/api/v1/campaigns", json=body()).status_code == 201


def test_no_browser_runs_or_guesses_at_an_answer(client: TestClient) -> None:
    refused = client.get("/api/v1/models", headers={"Host": "evil.example"})
    for answer in (client.get("/api/v1/models"), client.get("/static/live.js"), refused):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in client.get("/").headers["Content-Security-Policy"]
