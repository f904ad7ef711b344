"""What an eye sees of a page, and what of it nothing names to a screen reader."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from server.figures.outcome import Outcome, colour_of
from server.figures.vega import PALETTES, Scheme

COUNT_COLOUR = """(canvas, colour) => {
    const wanted = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let i = 0; i < data.length; i += 4)
        found += data[i + 3] > 150 && wanted.every((v, c) => Math.abs(data[i + c] - v) < 14);
    return found;
}"""

UNNAMED = """() => [...document.querySelectorAll("input, select, button, a, th, [role=img]")]
    .filter((e) => !e.closest("[hidden], dialog:not([open])"))
    .filter((e) => !(e.labels?.length || e.textContent.trim() || e.ariaLabel
        || e.getAttribute("aria-labelledby")))
    .map((e) => e.outerHTML)"""

LEGEND_PX = 60
"""At most this many pixels of a colour are the legend's symbol."""


def drawn(page: Page, outcome: Outcome, *, scheme: Scheme = "light") -> int:
    """Pixels of this outcome's colour in the trajectory."""
    canvas = page.locator("#trajectory canvas")
    found: int = canvas.evaluate(COUNT_COLOUR, colour_of(outcome, PALETTES[scheme]))
    return found


PLACE_OF_MARK = """async (number) => {
    const { viewOf } = await import("/static/charts.js");
    const plot = document.getElementById("trajectory");
    const view = viewOf(plot);
    const [left, top] = view.origin();
    const around = view.padding();
    function find(item, x, y) {
        if (item.datum?.number === number && item.mark.marktype === "symbol")
            return [x + item.x, y + item.y];
        for (const part of item.items ?? []) {
            const [dx, dy] = item.marktype === "group" ? [part.x ?? 0, part.y ?? 0] : [0, 0];
            const found = find(part, x + dx, y + dy);
            if (found) return found;
        }
        return null;
    }
    const [x, y] = find(view.scenegraph().root, left + around.left, top + around.top);
    return { x, y };
}"""


def click_mark(page: Page, number: int) -> None:
    """Click the mark of a trial in the trajectory."""
    page.locator("#trajectory canvas").click(position=page.evaluate(PLACE_OF_MARK, number))


def explained(page: Page) -> Page:
    """The page once its explanation has come, after which nothing moves any more."""
    expect(page.locator("#part-why[aria-busy]")).to_have_count(0)
    return page
