"""A campaign for a real service, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.client.question import CampaignInput
from autotune.schemas.campaigns import Event
from tests.serving import Served, serving

CAMPAIGN: CampaignInput = {
    "model": "gpt-22b",
    "machine": "frontier",
    "nodes": 2,
    "pool_nodes": 4,
    "evaluator": "simulated",
    "budget": {"max_trials": 5},
    "protocol": {"confirmations": 1},
}


def campaign_input(**changes: Any) -> CampaignInput:
    """Return the campaign with other values in some fields."""
    return cast("CampaignInput", {**CAMPAIGN, **changes})


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For no longer than these tests: its runner takes a twentieth of a core while it waits."""
    with serving(tmp_path_factory.mktemp("service")) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[Client]:
    with Client(service.url) as connected:
        yield connected


@pytest.fixture(scope="package")
def watched(service: Served) -> Iterator[tuple[CampaignHandle, list[Event]]]:
    """A campaign that was watched until it was done, and what was seen."""
    with Client(service.url) as connected:
        campaign = connected.create(**CAMPAIGN)
        yield campaign, list(campaign.watch())


@pytest.fixture(scope="package")
def finished(watched: tuple[CampaignHandle, list[Event]]) -> CampaignHandle:
    """That campaign, shared by the tests that only read."""
    return watched[0]
