"""What is compressed on the wire, and what is not."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.store import Store
from tests.server.asking import created, with_trials


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, br", "gzip"), ("identity", None)])
def test_large_answers_are_compressed_for_who_accepts_it(
    client: TestClient, store: Store, accepted: str, encoding: str | None
) -> None:
    campaign = created(store)
    with_trials(store, campaign, 30)
    path = f"/api/v1/campaigns/{campaign.id}/trials"
    answer = client.get(path, headers={"Accept-Encoding": accepted})
    assert answer.headers.get("content-encoding") == encoding
    assert "Accept-Encoding" in answer.headers["vary"]
    assert len(answer.json()["items"]) == 30
    small = client.get("/api/v1/models", headers={"Accept-Encoding": accepted})
    assert "content-encoding" not in small.headers
    known = {"Accept-Encoding": accepted, "If-None-Match": answer.headers["etag"]}
    assert client.get(path, headers=known).status_code == 304


def test_answers_to_post_are_not_compressed(client: TestClient) -> None:
    asked = {"model": "gpt-175b", "machine": "frontier", "nodes": 16}
    answer = client.post("/api/v1/sweeps", json=asked, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200, answer.text
    assert len(answer.content) > 8_000
    assert "content-encoding" not in answer.headers
