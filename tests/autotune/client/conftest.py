"""A campaign for a real service, and a client of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from autotune import Client
from autotune.client.campaign import CampaignHandle
from autotune.client.question import CampaignInput
from tests.server.recorded import NUMBER, copied, recorded
from tests.serving import Served, serving

__all__ = ["recorded"]

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
def service(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For no longer than these tests: its runner takes a twentieth of a core while it waits."""
    with serving(copied(recorded, tmp_path_factory.mktemp("service"))) as served:
        yield served


@pytest.fixture
def client(service: Served) -> Iterator[Client]:
    with Client(service.url) as connected:
        yield connected


@pytest.fixture(scope="package")
def finished(service: Served) -> Iterator[CampaignHandle]:
    """The recorded campaign, for tests that only read."""
    with Client(service.url) as connected:
        yield connected.campaign(NUMBER)
