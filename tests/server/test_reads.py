"""How often a page or a resource reads the store: each row once."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from server.settings import Settings
from server.store import Store
from server.store.campaign_list import refresh_best
from tests.server.dashboard.campaigns import Campaigns
from tests.server.statements import statements_of

ALL_TRIALS = re.compile(r"trials\.strategy.* ORDER BY trials\.number", re.DOTALL)
EVENT = 1
"""Its last: until another comes, nothing else is read again."""

CAMPAIGN = 4
"""Whether its stored best is up to date, its row, the counts of its trials, and its best."""
TRIALS = 1
RECOMMENDATION = 4
"""Stored by no runner here: one read, and what writes it."""


@pytest.fixture
def done(sqlite_settings: Settings) -> Campaign:
    campaigns = Campaigns(sqlite_settings)
    campaign = campaigns.done(ok=6, too_big=2)
    refresh_best(campaigns.store, [campaign.id])  # as its runner does
    campaigns.store.close()
    return campaign


@pytest.mark.parametrize(
    ("address", "most"),
    {
        "/campaigns/{}": 2 * EVENT
        + CAMPAIGN
        + TRIALS
        + RECOMMENDATION
        + 2,  # what it started from, the explanation
        "/campaigns/{}/fragments/progress": EVENT + CAMPAIGN + TRIALS,
        "/campaigns/{}/fragments/outcome": EVENT + CAMPAIGN + TRIALS + RECOMMENDATION,
        "/api/v1/campaigns/{}/figures/trajectory.json": 2 * EVENT + CAMPAIGN + TRIALS,
        "/api/v1/campaigns/{}/recommendation": EVENT + CAMPAIGN + TRIALS + RECOMMENDATION,
        "/api/v1/campaigns/{}/artefacts.zip": EVENT + CAMPAIGN + TRIALS + RECOMMENDATION,
    }.items(),
)
def test_a_campaigns_trials_are_read_once(
    app: FastAPI, client: TestClient, done: Campaign, address: str, most: int
) -> None:
    store: Store = app.state.store
    with statements_of(store) as statements:
        assert client.get(address.format(done.id)).is_success
    assert sum(bool(ALL_TRIALS.search(text)) for text in statements) <= 1, statements
    assert len(statements) <= most, statements
    with statements_of(store) as again:
        assert client.get(address.format(done.id)).is_success
    assert len(again) <= 2 * EVENT, again


def test_what_the_address_of_a_page_asks_for_makes_it_no_other(
    app: FastAPI, client: TestClient, done: Campaign
) -> None:
    page = client.get(f"/campaigns/{done.id}")
    with statements_of(app.state.store) as statements:
        filtered = client.get(f"/campaigns/{done.id}?state=oom&sort=mfu&trial=3")
    assert filtered.content == page.content
    assert len(statements) <= EVENT, statements
