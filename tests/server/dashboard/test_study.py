"""The page of a scaling study in a real browser."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import UNNAMED


def test_a_study_says_what_is_measured_and_what_is_kept(service: Service, visit: Open) -> None:
    campaign = service.campaigns.studied()
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    card = page.locator("#part-answer")
    expect(page.get_by_role("tab")).to_have_text(["Answer", "Trials"])
    expect(card.get_by_role("heading", name="Scaling study")).to_be_visible()
    expect(card).to_contain_text("of the rate per GPU from 2 to 8 nodes, simulated")
    expect(card).to_contain_text("not on 3 nodes, ")
    expect(page.locator("#trajectory, #part-why")).to_have_count(0)
    figure = page.locator("[data-figure=scaling]")
    expect(figure.locator("canvas")).to_be_visible()
    expect(figure.locator("[data-caption]")).to_contain_text("out of memory on 4 nodes")
    states = figure.locator("tbody tr td:last-child").all_text_contents()
    assert states == ["simulated", "out of memory", "simulated", "predicted"]
    assert page.evaluate(UNNAMED) == []
    page.goto(service.url)
    expect(page.get_by_role("row", name="22b on frontier").first).to_contain_text(
        "strong scaling of 1 layout"
    )
