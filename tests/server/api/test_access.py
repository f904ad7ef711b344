"""The token, and how browsers come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from search_spaces.errors import InvalidInput
from server.app import create_app
from server.auth.authentication import Authenticator
from server.auth.encryption import Encryption
from server.settings import Settings
from server.store.users import new_token
from tests.pace import QUICK
from tests.server.entitled import ADDRESS

MODELS = "/api/v1/models"


@pytest.fixture
def stranger(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app, base_url=ADDRESS, follow_redirects=False) as opened:
        yield opened


def authenticator(app: FastAPI) -> Authenticator:
    found: Authenticator = app.state.authenticator
    return found


def test_the_token_lets_in_and_a_refusal_names_its_place(
    app: FastAPI, stranger: TestClient
) -> None:
    answer = stranger.get(MODELS)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "service.json" in answer.json()["detail"]
    page = stranger.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert "autotune ls" in page.text
    assert stranger.get("/healthz").status_code == stranger.get("/readyz").status_code == 200
    for token, status in (
        (authenticator(app).token, 200),
        (new_token(), 401),
        (f"x{new_token()}", 401),
    ):
        known = {"Authorization": f"Bearer {token}"}
        assert stranger.get(MODELS, headers=known).status_code == status


@pytest.mark.parametrize(
    ("changes", "address", "peer", "status"),
    [
        ({}, "http://10.0.0.7", "10.0.0.9", 403),
        ({}, "https://10.0.0.7", "10.0.0.9", 200),
        ({}, "http://127.0.0.1", "127.0.0.1", 200),
        ({"proxy_addresses": ("10.0.0.9",)}, "http://10.0.0.7", "10.0.0.9", 200),
        ({"proxy_addresses": ("10.0.0.8",)}, "http://10.0.0.7", "10.0.0.9", 403),
        ({"insecure_http": True}, "http://10.0.0.7", "10.0.0.9", 200),
    ],
)
def test_what_others_could_read_is_refused(
    tmp_path: Path, changes: dict[str, Any], address: str, peer: str, status: int
) -> None:
    """Tokens, keys of browsers, and cookies alike."""
    app = create_app(Settings(data_dir=tmp_path, host="10.0.0.7", **changes), pace=QUICK)
    headers = {"Authorization": f"Bearer {authenticator(app).token}"}
    with TestClient(app, base_url=address, client=(peer, 1)) as client:
        answer = client.get(MODELS, headers=headers)
        assert answer.status_code == status, answer.text
        entered = client.get("/enter", params={"key": authenticator(app).new_key()})
        assert (entered.status_code, "Set-Cookie" in entered.headers) == (status, status == 200)
        assert client.get(MODELS).status_code == status
        assert client.get("/readyz").status_code == 200
        if status != 200:
            assert "HTTP is not encrypted" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "0.0.0.0", "insecure_http": True}, False),
        ({"host": "10.0.0.7", "proxy_addresses": ("10.0.0.8",)}, False),
    ],
)
def test_the_network_is_not_listened_to_without_tls(
    changes: dict[str, Any], *, refused: bool
) -> None:
    encryption = Encryption(Settings(**changes))
    if not refused:
        return encryption.demand()
    with pytest.raises(InvalidInput, match=r"not encrypted.*tls_cert and tls_key.*insecure_http"):
        encryption.demand()
    return None


def test_a_browser_enters_once_by_address_and_stays_on_this_site(
    app: FastAPI, stranger: TestClient
) -> None:
    for elsewhere in ("//evil.example", "http://evil.example", "/\\evil.example", ""):
        query = {"key": authenticator(app).new_key(), "to": elsewhere}
        assert 'content="0;url=/"' in stranger.get("/enter", params=query).text, elsewhere
        stranger.cookies.clear()
    key = authenticator(app).new_key()
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


def test_a_session_of_another_start_is_worth_nothing(stranger: TestClient) -> None:
    earlier = Authenticator()
    cookie = earlier.redeem(earlier.new_key())
    stranger.cookies.set("autotune", cookie or "")
    assert stranger.get(MODELS).status_code == 401
