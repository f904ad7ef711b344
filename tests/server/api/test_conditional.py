"""Answers that a client has already, heads of answers, and filters that there are none of."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from server.store import Store
from server.store.campaigns import pause_campaign
from tests.server.asking import created, with_trials


@pytest.mark.parametrize("part", ["", "/trials", "/trials/1"])
def test_what_has_not_changed_is_not_sent_again(
    client: TestClient, store: Store, part: str
) -> None:
    campaign = created(store)
    with_trials(store, campaign, 1)
    path = f"/api/v1/campaigns/{campaign.id}{part}"
    first = client.get(path)
    tag = first.headers["ETag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        again = client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["ETag"] == tag
    assert client.get(path, headers={"If-None-Match": '"other"'}).json() == first.json()


def test_a_change_has_another_tag(client: TestClient, store: Store) -> None:
    campaign = created(store)
    path = f"/api/v1/campaigns/{campaign.id}"
    tag = client.get(path).headers["ETag"]
    with store.transaction() as session:
        pause_campaign(session, campaign.id)
    changed = client.get(path, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.json()["state"] == "paused"


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
def test_an_unknown_filter_is_refused(client: TestClient, path: str, name: str, valid: str) -> None:
    answer = client.get(f"/api/v1{path}")
    assert answer.status_code == 422
    [problem] = answer.json()["errors"]
    assert (problem["field"], problem["valid"]) == (name, valid)
    assert "no such filter" in problem["reason"]
