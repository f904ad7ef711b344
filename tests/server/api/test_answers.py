"""How answers are sent: not again, without their body, compressed; and filters that there are none
of."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.store import Store
from server.store.campaigns import pause_campaign
from tests.server.asking import created, with_trials


def test_what_has_not_changed_is_not_sent_again(client: TestClient, store: Store) -> None:
    campaign = created(store)
    with_trials(store, campaign, 1)
    path = f"/api/v1/campaigns/{campaign.id}"
    for address in (path, f"{path}/trials", f"{path}/trials/1"):
        first = client.get(address)
        tag = first.headers["ETag"]
        for known in (tag, f'"other", W/{tag}', "*"):
            again = client.get(address, headers={"If-None-Match": known})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["ETag"] == tag
        assert client.get(address, headers={"If-None-Match": '"other"'}).json() == first.json()
    tag = client.get(path).headers["ETag"]
    with store.transaction() as session:
        pause_campaign(session, campaign.id)
    changed = client.get(path, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "paused")


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
    assert client.get(f"{path}?sort=-number", headers=known).status_code == 200


def test_answers_to_post_are_not_compressed(shared_client: TestClient) -> None:
    question = {"model": "gpt-175b", "machine": "frontier", "nodes": 16}
    headers = {"Accept-Encoding": "gzip"}
    answer = shared_client.post("/api/v1/plans", json=question, headers=headers)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) > 8_000
    assert "content-encoding" not in answer.headers


def test_a_head_is_the_answer_without_its_body(client: TestClient, store: Store) -> None:
    campaign = created(store)
    path = f"/api/v1/campaigns/{campaign.id}"
    whole, head = client.get(path), client.head(path)
    assert (head.status_code, head.content) == (200, b"")
    for name in ("ETag", "Content-Length", "Content-Type"):
        assert head.headers[name] == whole.headers[name]
    assert client.head(f"{path}/trials.csv").status_code == 200
    missing = client.head("/api/v1/campaigns/999")
    assert (missing.status_code, missing.content) == (404, b"")


@pytest.mark.parametrize(
    ("path", "name", "valid"),
    [
        ("/campaigns?stat=done", "stat", "state, owner, search, sort, cursor, limit"),
        ("/campaigns/1/trials?states=ok", "states", "state, purpose, sort, cursor, limit"),
        ("/campaigns/1?verbose=1", "verbose", "no filter"),
    ],
)
def test_an_unknown_filter_is_refused(
    shared_client: TestClient, path: str, name: str, valid: str
) -> None:
    answer = shared_client.get(f"/api/v1{path}")
    assert answer.status_code == 422
    [problem] = answer.json()["errors"]
    assert (problem["field"], problem["valid"]) == (name, valid)
    assert "no such filter" in problem["reason"]
