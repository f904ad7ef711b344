"""A figure on a page, in a real browser: drawn, told, live, and without JavaScript."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, expect

from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import UNNAMED, explained

FIGURE = "[data-figure=impact]"


def test_a_figure_has_its_picture_its_sentence_and_its_table(service: Service, visit: Open) -> None:
    campaign = service.campaigns.done()
    page = visit(f"{service.url}/campaigns/{campaign.id}", width=390, color_scheme="dark")
    figure = page.locator(FIGURE)
    figure.scroll_into_view_if_needed()
    expect(figure.locator("canvas")).to_be_visible()
    expect(figure.locator("[data-caption]")).to_contain_text(" ")
    expect(figure.locator("h2 .simulated")).to_be_visible()
    figure.get_by_text("The same as a table").click()
    expect(
        figure.get_by_role("row", name="Tensor").or_(figure.get_by_role("row", name="TP")).first
    ).to_be_visible()
    assert page.evaluate(UNNAMED) == []
    overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) <= 0
    with page.expect_download() as download:
        figure.get_by_role("link", name="Vega-Lite").evaluate("e => e.setAttribute('download', '')")
        figure.get_by_role("link", name="Vega-Lite").click()
    assert download.value.path()


def test_a_map_is_narrowed_by_its_selectors(service: Service, visit: Open) -> None:
    space = {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2], "num_nodes": [2, 4]}
    campaign = service.campaigns.done(space=space)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    figure = page.locator("[data-figure=map]")
    figure.scroll_into_view_if_needed()
    nodes = figure.get_by_label("nodes")
    expect(nodes).to_have_value("")
    with page.expect_response(lambda answer: "num_nodes=2" in answer.url) as answer:
        nodes.select_option("2")
    assert answer.value.ok
    expect(figure.locator("[data-caption]")).to_have_text(
        answer.value.json()["usermeta"]["caption"]
    )
    expect(nodes).to_have_value("2")
    expect(figure.get_by_label("micro-batch")).to_have_value("")
    link = figure.get_by_role("link", name="SVG", include_hidden=True)
    expect(link).to_have_attribute("href", re.compile(r"map\.svg\?num_nodes=2$"))


def test_a_figure_appears_with_the_first_measurement(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running()
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#stream")).to_have_text("live")
    expect(page.locator(FIGURE)).to_be_hidden()
    fitting = service.campaigns.strategies(campaign, 2, fitting=True)
    service.campaigns.finish(campaign, service.campaigns.start(campaign, fitting))
    expect(page.locator(FIGURE)).to_be_visible()
    explained(page).locator(FIGURE).scroll_into_view_if_needed()
    expect(page.locator(f"{FIGURE} canvas")).to_be_visible()


def test_without_javascript_a_figure_is_a_picture(service: Service, chromium: Browser) -> None:
    campaign = service.campaigns.done()
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(60_000)  # each picture is drawn by a process of its own
    page.goto(f"{service.url}/campaigns/{campaign.id}")
    picture = page.locator(f"{FIGURE} img")
    expect(picture).to_be_visible()
    drawn = "image => image.complete && image.naturalWidth > 0"
    assert picture.evaluate(drawn)
    context.close()
