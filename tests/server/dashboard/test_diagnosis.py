"""The page on which a log is dropped, in a real browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.evaluators.run_log.logs import bundled, megatron, written
from tests.server.dashboard.conftest import Faults, Open, Service
from tests.server.dashboard.perception import UNNAMED


def test_a_dropped_log_shows_its_causes(service: Service, visit: Open, tmp_path: Path) -> None:
    page = visit(f"{service.url}/diagnose")
    slow = megatron([45.0] * 20, changed={"bf16": False})
    page.locator("#log").set_input_files(written(tmp_path, slow, "slow.log"))
    answer = page.locator("#answer")
    expect(answer.get_by_role("heading", name="slow.log")).to_be_visible()
    expect(answer.locator(".causes li").first).to_contain_text("It trains in fp32")
    expect(answer.locator(".verdict.bad")).to_contain_text("Largest cause: fp32")
    expect(answer).to_contain_text("Expected of this layout")
    expect(answer.locator("code")).to_contain_text("autotune submit")
    assert page.evaluate(UNNAMED) == []


def test_what_the_log_lacks_is_stated_below(service: Service, visit: Open, tmp_path: Path) -> None:
    page = visit(f"{service.url}/diagnose")
    page.locator("#log").set_input_files(written(tmp_path, bundled([6.0] * 20)))
    answer = page.locator("#answer")
    expect(answer).to_contain_text("Not known: model, machine, nodes")
    page.get_by_text("Add what is missing").click()
    page.get_by_label("Model").fill("llama-3-8b")
    page.get_by_label("Machine").select_option("dgx-h100")
    page.get_by_label("Nodes").fill("8")
    page.get_by_label("Layout").fill("tp=2,mbs=1,gbs=512,zero=1,checkpointing=none")
    page.get_by_label("Layout").press("Tab")
    expect(answer).to_contain_text("The run is healthy")


def test_no_log_is_refused_in_its_place(
    service: Service, visit: Open, tmp_path: Path, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/diagnose")
    faults[0].expect("422")
    page.locator("#log").set_input_files(written(tmp_path, "hello\n"))
    expect(page.locator("#answer .notice.error")).to_contain_text("no line of it reports")
