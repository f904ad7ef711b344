"""Campaigns side by side, over HTTP."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.comparisons import CampaignComparison
from server.store import Store
from tests.server.asking import created

COMPARISON = "/api/v1/comparison"


def test_campaigns_are_compared_in_the_requested_order(client: TestClient, store: Store) -> None:
    first, second = created(store, seed=1), created(store, seed=2)
    answer = client.get(COMPARISON, params={"ids": f"{second.id},{first.id},{second.id}"})
    assert answer.status_code == 200, answer.text
    found = CampaignComparison.model_validate(answer.json())
    assert [each.campaign_id for each in found.campaigns] == [second.id, first.id]
    assert found.sentence == "Fewer than two of them have a result."
    answer = client.get(COMPARISON, params={"ids": f"{first.id},999"})
    assert answer.status_code == 404
    assert "999" in answer.json()["detail"]


@pytest.mark.parametrize("ids", ["1", "1,1", ",".join(map(str, range(1, 11))), "one,two", ""])
def test_what_is_no_choice_of_campaigns_is_refused(shared_client: TestClient, ids: str) -> None:
    answer = shared_client.get(COMPARISON, params={"ids": ids})
    assert answer.status_code == 422
    assert "ids" in answer.json()["errors"][0]["field"]
