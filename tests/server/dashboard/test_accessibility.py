"""Every page in its states, in both themes, wide and narrow: nothing that axe finds fault with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from autotune.schemas.choices import CampaignState
from tests.server.dashboard.conftest import PATIENCE_MS, Service

WIDE, NARROW = 1400, 390
READY = "body[data-ready], html:not(:has(script)) body"
"""A page has drawn itself, or there is nothing that does."""

AXE = Axe()


@pytest.fixture(scope="module")
def page(chromium: Browser) -> Iterator[Page]:
    """One for all addresses: a context of its own for each costs more than the checks."""
    context = chromium.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def violations(page: Page, address: str) -> list[str]:
    """What axe finds at an address, wide in the light theme and narrow in the dark one."""
    page.set_viewport_size({"width": WIDE, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(address)
    page.wait_for_selector(READY)
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.evaluate(AXE.axe_script)
    found = [f"light, wide: {fault}" for fault in _faults(page)]
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.emulate_media(color_scheme="dark")
    return found + [f"dark, narrow: {fault}" for fault in _faults(page)]


def _faults(page: Page) -> list[str]:
    faults = page.evaluate("() => axe.run({resultTypes: ['violations']})")["violations"]
    return [
        f"{fault['id']}: {fault['help']}: {node['html'][:200]} {node['failureSummary']}"
        for fault in faults
        for node in fault["nodes"]
    ]


@pytest.mark.soak
def test_nothing_is_found_on_any_page(service: Service, own_service: Service, page: Page) -> None:
    service.let_in(page.context)
    own_service.let_in(page.context)
    made = service.campaigns
    done, many = made.done(ok=8, too_big=4), made.many(300)
    failed = made.running(ok=0, too_big=5)
    made.move(failed, CampaignState.DONE, reason="Budget spent: 5 trials.")
    fresh, tuned = made.create(), made.with_knobs()
    addresses = [
        own_service.url,
        *(
            f"{service.url}{path}"
            for path in (
                "/",
                "/?search=nowhere",
                "/campaigns/new",
                "/plan",
                "/diagnose",
                "/compare",
                "/group",
                f"/compare?ids={done.id},{failed.id}",
                "/campaigns/999999",
                *(f"/campaigns/{each.id}" for each in (done, many, failed, fresh, tuned)),
                *(f"/campaigns/{done.id}?tab={tab}#{tab}" for tab in ("why", "space", "launch")),
                *(f"/campaigns/{each.id}?tab=trials#trials" for each in (done, failed)),
            )
        ),
    ]
    assert [f"{each}: {fault}" for each in addresses for fault in violations(page, each)] == []
