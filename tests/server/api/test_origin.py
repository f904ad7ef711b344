from __future__ import annotations

from socket import gethostname

from fastapi.testclient import TestClient

from server.auth.origin import TrustedHosts
from server.settings import Settings
from tests.server.asking import body


def test_the_service_answers_under_its_own_names_alone(shared_client: TestClient) -> None:
    for host in ("127.0.0.1:8765", "localhost", "LOCALHOST:1", "[::1]:8765"):
        assert shared_client.get("/healthz", headers={"Host": host}).status_code == 200, host
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[", "a:b:c"):
        answer = shared_client.get("/api/v1/campaigns", headers={"Host": host})
        assert answer.status_code == 421, host
        error = answer.json()["errors"][0]
        assert error["field"] == "Host"
        assert "localhost" in error["valid"]


def test_extra_hosts_and_a_networked_services_addresses_pass() -> None:
    hosts = TrustedHosts.of(Settings(allowed_hosts=("Login3.cluster",)))
    assert "login3.cluster" in hosts
    assert "10.0.0.7" not in hosts
    for bound in ("0.0.0.0", "::", "10.0.0.7"):
        hosts = TrustedHosts.of(Settings(host=bound))
        assert "evil.example" not in hosts
        for name in ("localhost", "10.0.0.7", "fd00::7", gethostname().lower()):
            assert name in hosts, (bound, name)


OTHER_SITES = [
    *("http://evil.example", "null", "http://127.0.0.1:81", "http://localhost"),
    "https://127.0.0.1:80",
]


def test_only_the_services_own_pages_and_programs_make_changes(
    client: TestClient,
) -> None:
    for origin in OTHER_SITES:
        headers = {"Origin": origin, "Host": "127.0.0.1:80"}
        answer = client.post("/api/v1/campaigns", json=body(), headers=headers)
        assert answer.status_code == 403, origin
        assert answer.json()["errors"][0]["field"] == "Origin"
    assert client.get("/api/v1/campaigns").json()["items"] == []
    own = {"Origin": "http://localhost:8765", "Host": "localhost:8765"}
    assert client.post("/api/v1/campaigns", json=body(), headers=own).status_code == 201
    assert client.post("/api/v1/campaigns", json=body()).status_code == 201


def test_no_browser_runs_or_guesses_at_an_answer(shared_client: TestClient) -> None:
    refused = shared_client.get("/api/v1/models", headers={"Host": "evil.example"})
    given = (shared_client.get(path) for path in ("/api/v1/models", "/static/live.js"))
    for answer in (refused, *given):
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    page = shared_client.get("/")
    assert "default-src 'self'" in page.headers["Content-Security-Policy"]
