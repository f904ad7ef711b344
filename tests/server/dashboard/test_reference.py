"""The reference of the API, in a real browser."""

from __future__ import annotations

from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.server.dashboard.conftest import Open, Service


def test_swagger_ui_loads_and_calls_only_this_origin(service: Service, visit: Open) -> None:
    """`visit` fails on whatever the page's policy refuses."""
    page = visit(f"{service.url}/compare", width=1400, color_scheme="dark")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{service.url}/reference#/catalog/catalog.models")
    page.wait_for_selector("body[data-ready]")
    assert {urlsplit(url).netloc for url in requests} - {""} == {urlsplit(service.url).netloc}
    policy = page.request.get(page.url).headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'self'" in policy
    expect(page.locator("html")).to_have_class("dark-mode")

    documented = page.request.get(f"{service.url}/api/v1/openapi.json").json()
    tags = [
        operation["tags"][0]
        for methods in documented["paths"].values()
        for operation in methods.values()
    ]
    expect(page.locator(".opblock-tag")).to_have_count(len(set(tags)))
    expect(page.locator(".opblock")).to_have_count(tags.count("catalog"))
    operation = page.locator(".opblock.is-open")
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    expect(operation.locator(".live-responses-table")).to_contain_text("gpt-175b")
    assert Axe().run(page, context={"exclude": [["#reference"]]}).violations_count == 0
    page.set_viewport_size({"width": 390, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
