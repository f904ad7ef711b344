from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import Request

from server import logs
from server.app import create_app
from server.settings import Settings
from server.store.users import new_token
from tests.pace import QUICK
from tests.server.entitled import entitled

PASSWORD = "hunter-two"


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def written() -> Iterator[None]:
    """What a process writes to is as it was before, afterwards."""
    before, root = structlog.get_config(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:], root.level = handlers, level
    structlog.configure(**before)


@pytest.fixture
def app(tmp_path: Path, written: None) -> Iterator[FastAPI]:  # noqa: ARG001
    """A service in this process that writes JSON."""
    settings = Settings(data_dir=tmp_path, log_format="json")
    logs.configure(settings, "service", terminal=True)
    app = create_app(settings, pace=QUICK)
    logs.withhold(app.state.authenticator.token)
    yield app
    app.state.store.close()


def test_each_request_has_one_line_and_an_id_in_its_answer(app: FastAPI, tmp_path: Path) -> None:
    client = entitled(app)
    sent = client.get("/api/v1/campaigns/7", headers={"X-Request-ID": "my-id.7"})
    assert (sent.headers["X-Request-ID"], sent.json()["request_id"]) == ("my-id.7", "my-id.7")
    (line,) = [each for each in lines(tmp_path / "service.log") if each["event"] == "answered"]
    assert (line["request"], line["path"], line["status"], line["level"]) == (
        *("my-id.7", "/api/v1/campaigns/7", 404),
        "info",
    )
    assert line["route"] == "/api/v1/campaigns/{campaign_id}"
    assert line["duration_s"] >= 0
    refused = TestClient(app, base_url="http://127.0.0.1").get("/api/v1/campaigns")
    assert refused.status_code == 401
    assert refused.json()["request_id"] == refused.headers["X-Request-ID"]


def test_an_id_that_is_none_is_replaced(client: TestClient) -> None:
    for proposed in ("", "a b", "x" * 65, 'a"}\\n{"', "é"):
        answer = client.get("/healthz", headers={b"X-Request-ID": proposed.encode()})
        assert len(answer.headers["X-Request-ID"]) == 16, proposed
        assert answer.headers["X-Request-ID"].isalnum()


def test_a_failure_is_found_by_the_id_in_its_answer(app: FastAPI, tmp_path: Path) -> None:
    @app.get("/broken")
    def broken(request: Request) -> None:
        structlog.get_logger("server").error("about to fail", exc_info=ValueError(str(request.url)))
        raise ValueError("the cause")

    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    headers = {"Authorization": f"Bearer {app.state.authenticator.token}"}
    answer = client.get("/broken", headers=headers)
    document = answer.json()
    assert answer.status_code == 500
    assert document["detail"].endswith(document["request_id"])
    log = lines(tmp_path / "service.log")
    of_it = [line for line in log if line.get("request") == document["request_id"]]
    assert {line["event"] for line in of_it} == {"about to fail", "answered"}
    assert {line.get("status") for line in of_it} == {None, 500}


def test_no_line_has_a_secret(app: FastAPI, tmp_path: Path) -> None:
    token, key = app.state.authenticator.token, app.state.authenticator.new_key()
    client = TestClient(app, base_url="http://127.0.0.1")
    client.get(f"/enter?key={key}&to=/")
    client.get("/api/v1/campaigns", headers={"Authorization": f"Bearer {token}"})
    client.get(f"/api/v1/campaigns?token={token}")
    client.get(f"/{token}")
    of_user = new_token("sue")
    client.get(f"/{of_user}")
    log, other = structlog.get_logger("server.any"), logging.getLogger("any.other")
    address = f"postgresql://me:{PASSWORD}@host/autotune"
    log.info("signed in", sent={"token": of_user})
    log.error("not reached", url=address, exc_info=ValueError(f"/enter?key={key}"))
    other.warning("Authorization: Bearer %s to %s", "for-prometheus", address)
    text = (tmp_path / "service.log").read_text()
    assert "not reached" in text
    assert all(
        secret not in text
        for secret in (token, key, PASSWORD, of_user.partition(".")[2], "for-prometheus")
    )
    assert "host/autotune" in text


def test_a_log_is_rotated_when_it_has_grown_and_the_oldest_goes(
    tmp_path: Path, written: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del written
    monkeypatch.setattr(logs, "MOST_BYTES", 2000)
    monkeypatch.setattr(logs, "FILES", 3)
    logs.configure(Settings(data_dir=tmp_path), "runner", terminal=True)
    for number in range(100):
        structlog.get_logger("server").info("happened", number=number, campaign=7)
    files = sorted(tmp_path.glob("runner.log*"))
    assert [file.name for file in files] == ["runner.log", "runner.log.1", "runner.log.2"]
    assert all(file.stat().st_size <= 2000 and file.stat().st_mode & 0o077 == 0 for file in files)
    assert "number=99" in files[0].read_text()
    assert "campaign=7" in files[0].read_text()


def test_two_runners_of_one_folder_write_into_files_of_their_own(tmp_path: Path) -> None:
    assert logs.free_log(tmp_path, "runner").name == "runner.log"
    assert logs.free_log(tmp_path, "runner").name == "runner-2.log"
