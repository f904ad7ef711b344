from __future__ import annotations

import sqlite3
import time
from contextlib import closing

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from server.store import Store
from server.store.engine import POOL
from tests.pace import QUICK
from tests.server.asking import body, created, with_trials
from tests.server.entitled import entitled


def test_a_service_with_another_schema_is_alive_but_not_ready(
    client: TestClient, store: Store
) -> None:
    for path in ("/healthz", "/readyz"):
        assert client.get(path).json() == {"status": "ok"}
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert client.get("/healthz").status_code == 200
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert "schema" in answer.json()["detail"]


def test_a_database_that_cannot_answer_is_a_503(client: TestClient, store: Store) -> None:
    created(store)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE campaigns RENAME TO elsewhere")
    answer = client.get("/api/v1/campaigns")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "campaigns" not in answer.json()["detail"], "what the database said is for the log"


def test_a_damaged_file_is_a_503_of_everything(
    client: TestClient, store: Store, sqlite_settings: Settings
) -> None:
    with_trials(store, created(store), 50)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store.engine.dispose()
    file = sqlite_settings.data_dir / "autotune.db"
    with file.open("r+b") as database:
        database.seek(4096)
        database.write(b"\xff" * (file.stat().st_size - 4096))
    for path in ("/api/v1/campaigns/1", "/readyz", "/api/v1/campaigns", "/campaigns/1"):
        answer = client.get(path)
        assert answer.status_code == 503, path
        assert "the database's file is damaged" in answer.json()["detail"], path


def test_a_write_does_not_wait_long_for_a_locked_file(
    client: TestClient, sqlite_settings: Settings
) -> None:
    with closing(sqlite3.connect(sqlite_settings.data_dir / "autotune.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        answer = client.post("/api/v1/campaigns", json=body())
        assert answer.status_code == 503
        assert answer.headers["Retry-After"]
        assert time.monotonic() - began < 60
        assert client.get("/api/v1/campaigns").json()["items"] == []


def test_when_all_connections_are_in_use_it_is_a_503(
    sqlite_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"pool_size": 1, "max_overflow": 0, "pool_timeout": 0.05}.items():
        monkeypatch.setitem(POOL, name, value)
    app = create_app(sqlite_settings, pace=QUICK)
    store: Store = app.state.store
    client = entitled(app)
    with store.engine.connect():
        answer = client.get("/api/v1/campaigns")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert "all connections to the database are in use" in answer.json()["detail"]
    assert client.get("/api/v1/campaigns").is_success
    store.close()


def test_unknown_paths_and_methods_and_invalid_json_are_problems(
    shared_client: TestClient,
) -> None:
    for method, path, status in (("GET", "/api/v2", 404), ("PUT", "/api/v1/campaigns", 405)):
        answer = shared_client.request(method, path)
        assert answer.status_code == status
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert path in answer.json()["detail"]
    for content, content_type in ((b"{", "application/json"), (b"a=b", "text/plain"), (b"", "")):
        headers = {"Content-Type": content_type}
        answer = shared_client.post("/api/v1/campaigns", content=content, headers=headers)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["field"].startswith("body")


def test_a_database_that_is_deleted_is_noticed(
    client: TestClient, sqlite_settings: Settings
) -> None:
    file = sqlite_settings.data_dir / "autotune.db"
    for part in file.parent.glob("autotune.db*"):
        part.unlink()
    for _ in range(2):
        for path in ("/readyz", "/api/v1/campaigns", "/campaigns/1"):
            answer = client.get(path)
            assert answer.status_code == 503, path
        assert "the database was deleted since this process opened it" in answer.text
    assert not file.exists(), "no empty one is made in its place"
    other = Store(sqlite_settings.url)
    other.upgrade()
    other.close()
    assert client.get("/readyz").status_code == 503
    assert client.get("/healthz").is_success
