"""The token, and how browsers come in."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.client.credentials import LIFE_S, PROOF, Credential
from server.api.access import MOST_KEYS, Access
from tests.server.entitled import ADDRESS

MODELS = "/api/v1/models"


@pytest.fixture
def stranger(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=ADDRESS, follow_redirects=False) as opened:
        yield opened


def access(app: FastAPI) -> Access:
    found: Access = app.state.access
    return found


def asked(app: FastAPI, **changes: str | int) -> Credential:
    told = {"audience": "127.0.0.1:80", "method": "GET", "target": MODELS} | changes
    return Credential.issue(access(app).token, **told)  # type: ignore[arg-type]


def test_a_request_without_the_token_is_told_where_it_is(stranger: TestClient) -> None:
    answer = stranger.get(MODELS)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "service.json" in answer.json()["detail"]
    page = stranger.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert "autotune open" in page.text
    assert stranger.get("/healthz").status_code == stranger.get("/readyz").status_code == 200


def test_the_token_itself_is_taken_too(app: FastAPI, stranger: TestClient) -> None:
    known = {"Authorization": f"Bearer {access(app).token}"}
    assert stranger.get(MODELS, headers=known).status_code == 200
    assert PROOF not in stranger.get(MODELS, headers=known).headers


def test_a_credential_is_answered_with_its_proof(app: FastAPI, stranger: TestClient) -> None:
    credential = asked(app)
    answer = stranger.get(MODELS, headers={"Authorization": f"Bearer {credential}"})
    assert answer.status_code == 200
    assert answer.headers[PROOF] == access(app).keys.proof(credential, status=200)
    missing = asked(app, target="/api/v1/models/none")
    answer = stranger.get("/api/v1/models/none", headers={"Authorization": f"Bearer {missing}"})
    assert answer.headers[PROOF] == access(app).keys.proof(missing, status=answer.status_code)


@pytest.mark.parametrize(
    "changes",
    [
        {"audience": "127.0.0.1:81"},
        {"audience": "[::1]:80"},
        {"audience": "evil.example:80"},
        {"method": "DELETE"},
        {"target": "/api/v1/machines"},
    ],
)
def test_a_credential_for_anything_else_is_refused(
    app: FastAPI, stranger: TestClient, changes: dict[str, str]
) -> None:
    headers = {"Authorization": f"Bearer {asked(app, **changes)}"}
    # A name that only the request itself says is none of the service's.
    for host in ("127.0.0.1", "127.0.0.1:81", "[::1]:80"):
        answer = stranger.get(MODELS, headers=headers | {"Host": host})
        assert answer.status_code == 401
        assert PROOF not in answer.headers


def test_an_old_credential_is_refused_with_the_reason(
    app: FastAPI, stranger: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - LIFE_S - 2)
    credential = asked(app)
    monkeypatch.undo()
    answer = stranger.get(MODELS, headers={"Authorization": f"Bearer {credential}"})
    assert answer.status_code == 401
    assert "clocks" in answer.json()["detail"]


def test_a_browser_comes_in_once_by_its_address(app: FastAPI, stranger: TestClient) -> None:
    key = access(app).new_key()
    answer = stranger.get("/enter", params={"key": key, "to": "/compare"})
    assert answer.status_code == 200
    assert "url=/compare" in answer.text
    cookie = answer.headers["Set-Cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert stranger.get("/").status_code == stranger.get(MODELS).status_code == 200
    assert stranger.get("/enter", params={"key": key}).status_code == 200  # it is in already
    stranger.cookies.clear()
    assert stranger.get("/enter", params={"key": key}).status_code == 401
    assert stranger.get("/").status_code == 401


@pytest.mark.parametrize("page", ["//evil.example", "http://evil.example", "/\\evil.example", ""])
def test_the_entrance_leads_nowhere_else(app: FastAPI, stranger: TestClient, page: str) -> None:
    answer = stranger.get("/enter", params={"key": access(app).new_key(), "to": page})
    assert 'content="0;url=/"' in answer.text


def test_a_session_of_another_start_is_worth_nothing(stranger: TestClient) -> None:
    earlier = Access()
    cookie = earlier.session(earlier.new_key())
    stranger.cookies.set("autotune", cookie or "")
    assert stranger.get(MODELS).status_code == 401


def test_keys_that_nobody_uses_do_not_pile_up() -> None:
    kept = Access()
    keys = [kept.new_key() for _ in range(MOST_KEYS + 1)]
    assert kept.session(keys[0]) is None
    assert kept.session(keys[-1]) is not None
