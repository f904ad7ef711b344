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
SEEN = ".told > details:nth-of-type(16n + 2)"
"""Axe looks into one of sixteen, for all are written alike, and each takes it a tenth of a
second."""

MOST_SENT_BYTES = 100_000
MOST_FOLDED_PX = 20_000

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


def test_the_reference_is_small_and_opens_what_is_searched_or_linked(
    service: Service, visit: Open
) -> None:
    page = visit(f"{service.url}/reference", width=1400, color_scheme="dark")
    sent = page.request.get(f"{service.url}/reference")
    assert sent.headers["content-encoding"] == "gzip"
    assert int(sent.headers["content-length"]) < MOST_SENT_BYTES
    assert page.evaluate("document.documentElement.scrollHeight") < MOST_FOLDED_PX
    documented = page.request.get(f"{service.url}/api/v1/openapi.json").json()
    headings = page.evaluate(
        "[...document.querySelectorAll('.operation h3')].map(h => h.textContent)"
    )
    operations = [f"{m.upper()} {path}" for path, item in documented["paths"].items() for m in item]
    assert sorted(headings) == sorted(operations)
    schemas = documented["components"]["schemas"]
    properties = sum(len(schema.get("properties", ())) for schema in schemas.values())
    assert page.locator(".object").count() == len(schemas)
    assert page.locator(".object .properties tbody tr").count() == properties
    targets = page.evaluate(
        "[...document.querySelectorAll('main a[href^=\"#\"]')].map(a => a.hash.slice(1))"
    )
    assert page.evaluate("names => names.filter(n => !document.getElementById(n))", targets) == []

    page.evaluate("seen => document.querySelectorAll(seen).forEach((e) => (e.open = true))", SEEN)
    looks: list[tuple[int, Literal["dark", "light"]]] = [(1400, "dark"), (390, "light")]
    for width, scheme in looks:
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        left_out = [[f".told > details:not({SEEN})"]]
        assert Axe().run(page, context={"exclude": left_out}).violations_count == 0

    page.get_by_role("searchbox").fill("rank artefacts.zip")
    expect(page.get_by_role("status").filter(has_text=re.compile(r"^1 of"))).to_be_visible()
    operation = page.locator(".told > details:visible")
    expect(operation).to_have_attribute("id", "recommendations.archive")
    expect(operation).to_contain_text(f"curl -O {service.url}/api/v1/campaigns/1/artefacts.zip")
    expect(operation).to_contain_text('client.campaign(1).download("run.zip")')
    operation.get_by_role("link", name="Problem").click()
    expect(page.locator("#Problem")).to_be_in_viewport()
    expect(page.locator("#Problem .properties")).to_be_visible()
    expect(page.locator("#campaigns\\.read")).to_be_attached()
    expect(page.get_by_role("searchbox")).to_have_value("")
