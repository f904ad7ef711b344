"""The page for the admins of a group in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from autotune.schemas.choices import CampaignState
from autotune.schemas.users import UserCreate
from server.store.users import add_user
from tests.server.asking import created, moved
from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import UNNAMED


@pytest.fixture
def group_service(
    tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Service]:
    monkeypatch.setenv("AUTOTUNE_GROUP", "true")
    running = Service(tmp_path, scripts=scripts)
    yield running
    running.close()


def test_the_group_page_leads_to_a_users_campaigns(group_service: Service, visit: Open) -> None:
    store = group_service.campaigns.store
    with store.transaction() as session:
        add_user(session, UserCreate(name="sue"))
    for name in ("of sue", "also"):
        created(store, owner="sue", name=name)
    own = created(store, name="not of sue")
    moved(store, own.id, CampaignState.CANCELLED)
    page = visit(group_service.url)
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Group").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_text(["the service's own user 0 1 0 0 0", "sue 2 0 0 0 0"])
    assert page.evaluate(UNNAMED) == []
    page.get_by_role("link", name="sue").click()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator("#campaigns")).not_to_contain_text("not of sue")


def test_a_service_of_one_user_offers_no_group(service: Service, visit: Open) -> None:
    page = visit(service.url)
    expect(page.get_by_role("link", name="Campaigns").first).to_be_visible()
    expect(page.get_by_role("link", name="Group")).to_have_count(0)
