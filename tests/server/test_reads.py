"""How often a page or a resource reads the store: each row once."""

from __future__ import annotations

import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas import Campaign
from server.settings import Settings
from server.store import Store
from tests.server.dashboard.campaigns import Campaigns
from tests.server.statements import statements_of

ALL_TRIALS = re.compile(r"trials\.strategy.* ORDER BY trials\.number", re.DOTALL)
CAMPAIGN = 5
"""Its row, the sums over its trials, its fastest trial, its confirmations, and the few trials that
decide with them what is recommended."""
TRIALS = 2
"""How all of them stand, and the rows of those that are not kept."""


@pytest.fixture
def done(sqlite_settings: Settings) -> Campaign:
    campaigns = Campaigns(sqlite_settings)
    campaign = campaigns.done(ok=6, too_big=2)
    campaigns.store.close()
    return campaign


@pytest.mark.parametrize(
    ("address", "most"),
    {
        "/campaigns/{}": CAMPAIGN + TRIALS + 3,  # the last event, the profile, what it started from
        "/campaigns/{}/fragments/summary": CAMPAIGN,
        "/campaigns/{}/fragments/outcome": CAMPAIGN + TRIALS + 1,
        "/campaigns/{}/charts/trajectory.json": CAMPAIGN + TRIALS,
        "/campaigns/{}/charts/accumulations.json": CAMPAIGN + TRIALS + 1,
        "/api/v1/campaigns/{}/recommendation": CAMPAIGN + TRIALS + 1,
        "/api/v1/campaigns/{}/artefacts.zip": CAMPAIGN + TRIALS + 2,
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
