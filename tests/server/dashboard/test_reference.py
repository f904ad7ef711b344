"""The reference of the API: its words, and the page in a real browser."""

from __future__ import annotations

import re
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from server.dashboard.reference import marked
from server.dashboard.reference_types import type_words
from tests.server.dashboard.conftest import Open, Service

TRIALS = {"type": "array", "items": {"$ref": "#/components/schemas/Trial"}}
RANK = {"type": "integer", "minimum": 1, "maximum": 100}
SEEN_OF_ARTICLES = 8
"""Axe looks at one of so many, for all are written alike, and each takes it a tenth of a second."""

SECONDS = {"type": "number", "exclusiveMinimum": 0, "maximum": 86400}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"anyOf": [RANK, {"type": "null"}]}, "whole number, 1 to 100 or null"),
        (SECONDS, "number, at most 86,400, above 0"),
        (TRIALS | {"minItems": 1, "maxItems": 9}, "list of [Trial] (1 to 9)"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "object of string"),
        ({"enum": ["ok", "oom", "failed"]}, '"ok", "oom" or "failed"'),
        ({"$ref": "#/components/schemas/Budget-Input"}, "[Budget (as sent)]"),
        ({}, "anything"),
    ],
)
def test_types_in_words(schema: dict[str, Any], words: str) -> None:
    parts = [f"[{part.text}]" if part.schema else part.text for part in type_words(schema)]
    assert "".join(parts) == words


def test_what_is_said_is_never_read_as_html() -> None:
    assert str(marked("`a<b` & **c**")) == "<code>a&lt;b</code> &amp; <strong>c</strong>"


def test_the_reference_is_searched_and_followed(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/reference", width=1400, color_scheme="dark")
    looks: list[tuple[int, Literal["dark", "light"], int]] = [(1400, "dark", 1), (390, "light", 2)]
    for width, scheme, offset in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        left_out = [f"article:not(:nth-of-type({SEEN_OF_ARTICLES}n + {offset}))"]
        assert Axe().run(page, context={"exclude": [left_out]}).violations_count == 0
    documented = page.request.get(f"{service.url}/api/v1/openapi.json").json()
    headings = page.evaluate(
        "[...document.querySelectorAll('article h3')].map(h => h.innerText.replace(/\\s+/g, ' '))"
    )
    operations = [f"{m.upper()} {path}" for path, item in documented["paths"].items() for m in item]
    assert sorted(headings[: len(operations)]) == sorted(operations)
    assert page.locator("article.object").count() == len(documented["components"]["schemas"])
    targets = page.evaluate(
        "[...document.querySelectorAll('main a[href^=\"#\"]')].map(a => a.hash.slice(1))"
    )
    assert page.evaluate("names => names.filter(n => !document.getElementById(n))", targets) == []

    page.get_by_role("searchbox").fill("rank artefacts.zip")
    expect(page.get_by_role("status").filter(has_text=re.compile(r"^1 of"))).to_be_visible()
    operation = page.locator("article:visible")
    expect(operation).to_have_attribute("id", "recommendations.archive")
    expect(operation).to_contain_text(f"curl -O {service.url}/api/v1/campaigns/1/artefacts.zip")
    expect(operation).to_contain_text('client.campaign(1).download("run.zip")')
    operation.get_by_text("Refusals").click()
    operation.get_by_role("link", name="Problem").click()
    expect(page.locator("#Problem")).to_be_in_viewport()
    expect(page.locator("#campaigns\\.read")).to_be_attached()
    expect(page.get_by_role("searchbox")).to_have_value("")
