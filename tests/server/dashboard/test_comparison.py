"""Campaigns side by side in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.server.dashboard.conftest import Open, Service


def test_campaigns_are_chosen_and_compared(service: Service, visit: Open) -> None:
    one, other = "one of two", "other of two"
    first = service.campaigns.done(ok=5, too_big=2, name=one, seed=1)
    service.campaigns.done(ok=4, too_big=1, name=other, seed=2)
    page = visit(f"{service.url}/compare?ids={first.id}")
    expect(page.get_by_role("heading", name="Choose campaigns")).to_be_visible()
    page.get_by_role("checkbox", name=other).check()
    page.get_by_role("button", name="Compare").click()
    page.wait_for_selector("body[data-ready]")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text("found the best")
    rows = page.locator("section", has=page.locator("#winners-title")).locator("tbody tr")
    expect(rows).to_have_count(2)
    for name in (one, other):
        expect(rows.filter(has_text=name)).to_have_count(1)
    expect(page.locator("#progress canvas")).to_be_visible()
    page.get_by_text("Trial", exact=True).first.click()
    expect(page.locator("#progress canvas")).to_be_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_what_cannot_be_compared_is_reported(service: Service, visit: Open) -> None:
    known = service.campaigns.create()
    page = visit(f"{service.url}/campaigns/new")  # so that the context is the tests' own
    for ids, words in (
        (f"{known.id},99999", "no campaign 99999"),
        ("one,two", "'one' is no number of a campaign"),
        (",".join(str(n) for n in range(1, 12)), "Choose two to 8"),
    ):
        answer = page.request.get(f"{service.url}/compare?ids={ids}")
        assert answer.status == 422
        assert words in answer.text().replace("&#39;", "'")
