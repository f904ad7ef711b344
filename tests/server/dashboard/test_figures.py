"""A figure on a page, in a real browser: drawn, told, live, and without JavaScript."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from autotune.schemas.campaigns import Campaign
from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import UNNAMED, explained

FIGURE = "[data-figure=impact]"
PARALLEL = "[data-figure=parallel]"

CALIBRATION = "[data-figure=calibration]"
DOMAIN = """async (card) => {
    const { viewOf } = await import("/static/charts.js");
    return viewOf(document.querySelector(`${card} .plot`)).scale("x").domain();
}"""

ALONE = """() => document.querySelectorAll("[data-figure]:not([data-figure=parallel])")
    .forEach((figure) => figure.remove())"""
"""Others that are drawn later would move it away under the pointer."""

PLACE_ON_AXIS = """async ([name, place]) => {
    const { viewOf } = await import("/static/charts.js");
    const plot = document.querySelector("[data-figure=parallel] .plot");
    plot.scrollIntoView({ block: "center", behavior: "instant" });
    const [view, corner] = [viewOf(plot), plot.querySelector("canvas").getBoundingClientRect()];
    const { axis } = view.data("axes").find((each) => each.name === name);
    const [left, top] = view.origin();
    const around = view.padding();
    return {
        x: corner.left + left + around.left + view.scale("x")(axis),
        y: corner.top + top + around.top + view.scale("y")(place),
    };
}"""


def test_a_figure_has_its_picture_its_sentence_and_its_table(
    service: Service, done: Campaign, visit: Open
) -> None:
    page = visit(f"{service.url}/campaigns/{done.id}#why", width=390, color_scheme="dark")
    figure = page.locator(FIGURE)
    expect(figure.locator("canvas")).to_be_attached()  # though nobody has scrolled to it
    expect(figure.get_by_role("heading", name="Importance")).to_be_visible()
    expect(figure.locator("[data-caption]")).to_contain_text(" ")
    figure.get_by_text("Table", exact=True).click()
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


def test_a_map_is_narrowed_by_its_selectors(service: Service, done: Campaign, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/{done.id}#space")
    figure = page.locator("[data-figure=map]")
    figure.scroll_into_view_if_needed()
    nodes = figure.get_by_label(re.compile("^nodes"))
    expect(nodes).to_have_value("")
    with page.expect_response(lambda answer: "num_nodes=2" in answer.url) as answer:
        nodes.select_option("2")
    assert answer.value.ok
    expect(figure.locator("[data-caption]")).to_have_text(
        answer.value.json()["usermeta"]["caption"]
    )
    expect(nodes).to_have_value("2")
    expect(figure.get_by_label(re.compile("^micro-batch"))).to_have_value("")
    link = figure.get_by_role("link", name="SVG", include_hidden=True)
    expect(link).to_have_attribute("href", re.compile(r"map\.svg\?num_nodes=2$"))
    figure.get_by_label(re.compile("^x ")).select_option("micro_batch_size")
    expect(figure.get_by_role("heading")).to_have_text("Best rate by MBS and PP")
    expect(link).to_have_attribute("href", re.compile(r"num_nodes=2&x=micro_batch_size$"))


def to_brush(service: Service, done: Campaign, visit: Open) -> tuple[Page, Locator]:
    """Open the parallel coordinates; return the page and what says which trials are brushed."""
    address = f"{service.url}/campaigns/{done.id}#space"
    page = explained(visit(address, reduced_motion="reduce"))
    page.evaluate(ALONE)
    figure = page.locator(PARALLEL)
    figure.scroll_into_view_if_needed()
    brushed = figure.get_by_role("status")
    expect(brushed).to_contain_text("Drag along an axis")
    return page, brushed


def test_lines_are_brushed_and_lead_to_their_trials(
    service: Service, done: Campaign, visit: Open
) -> None:
    page, brushed = to_brush(service, done, visit)
    head, middle = (page.evaluate(PLACE_ON_AXIS, ["rate", place]) for place in (1.05, 0.5))
    page.mouse.move(**head)
    page.mouse.down()
    page.mouse.move(**middle, steps=3)
    page.mouse.up()
    chart = page.request.get(f"{service.url}/api/v1/campaigns/{done.id}/figures/parallel.json")
    lines = chart.json()["lines"]
    within = [line for line in lines if line["places"][-1] >= 0.5]
    assert 0 < len(within) < len(lines)
    expect(brushed).to_contain_text(f"{len(within)} of {len(lines)} trials")
    expect(brushed).to_contain_text(f"the best is trial {within[-1]['number']}")
    failed = page.evaluate(PLACE_ON_AXIS, ["rate", -0.12])
    page.mouse.click(**failed)
    expect(brushed).to_contain_text(f"{done.failures} of them failed")
    brushed.get_by_role("button", name="Clear").click()
    expect(brushed).to_contain_text("Drag along an axis")
    page.mouse.click(**middle)
    brushed.get_by_role("button", name=f"Open trial {lines[-1]['number']}").click()
    opener = page.get_by_role("button", name=f"Details of trial {lines[-1]['number']}")
    expect(opener).to_have_attribute("aria-expanded", "true")


def test_brushed_trials_are_shown_as_rows(service: Service, done: Campaign, visit: Open) -> None:
    page, brushed = to_brush(service, done, visit)
    page.mouse.click(**page.evaluate(PLACE_ON_AXIS, ["rate", -0.12]))
    brushed.get_by_role("button", name=f"Show these {done.failures} trials").click()
    rows = page.locator("#trial-rows tr.trial")
    expect(rows).to_have_count(done.failures)
    expect(page.locator("#trial-rows tr.trial:not(.ok)")).to_have_count(done.failures)
    page.reload()
    expect(rows).to_have_count(done.failures)
    page.get_by_label(re.compile("^Trials all")).select_option("all")
    expect(rows).not_to_have_count(done.failures)
    page.get_by_role("tab", name="Space").click()
    figure = page.locator(PARALLEL)
    figure.get_by_label("failed trials").select_option("hidden")
    expect(figure.locator("[data-caption]")).to_contain_text(
        f"{done.failures} failed trials hidden"
    )


@pytest.mark.parametrize(("tab", "card"), [("answer", "#trajectory-card"), ("trials", CALIBRATION)])
def test_a_chart_is_zoomed_and_reset(
    service: Service, done: Campaign, visit: Open, tab: str, card: str
) -> None:
    page = explained(visit(f"{service.url}/campaigns/{done.id}#{tab}", reduced_motion="reduce"))
    chart = page.locator(f"{card} canvas")
    chart.scroll_into_view_if_needed()
    reset = page.locator(card).get_by_role("button", name="Reset zoom")
    expect(reset).to_be_hidden()
    whole = page.evaluate(DOMAIN, card)
    box = chart.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 4)
    page.mouse.move(*middle)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    expect(reset).to_be_visible()
    low, high = page.evaluate(DOMAIN, card)
    assert whole[0] < low < high < whole[1]
    page.mouse.down()
    page.mouse.move(middle[0] - 40, middle[1], steps=3)
    page.mouse.up()
    assert page.evaluate(DOMAIN, card)[0] > low
    reset.click()
    expect(reset).to_be_hidden()
    assert page.evaluate(DOMAIN, card) == whole


def test_a_figure_appears_with_the_first_measurement(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running()
    page = visit(f"{service.url}/campaigns/{campaign.id}#why")
    expect(page.locator("#stream")).to_have_text("live")
    expect(page.locator(FIGURE)).to_be_hidden()
    fitting = service.campaigns.strategies(campaign, 2, fitting=True)
    service.campaigns.finish(campaign, service.campaigns.start(campaign, fitting))
    expect(page.locator(FIGURE)).to_be_visible()
    explained(page).locator(FIGURE).scroll_into_view_if_needed()
    expect(page.locator(f"{FIGURE} canvas")).to_be_visible()
