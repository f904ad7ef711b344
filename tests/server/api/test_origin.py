from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.api.origin import trusted_hosts
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


def test_further_names_can_be_allowed_and_a_public_service_has_any() -> None:
    settings = Settings(allowed_hosts=("login3.cluster",))
    assert "login3.cluster" in (trusted_hosts(settings) or ())
    assert trusted_hosts(Settings(host="0.0.0.0")) is None


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:81", "http://localhost"]
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
