"""The page of plans and the form's answer in a real browser: what they say while one types."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.server.dashboard.conftest import Faults, Open, Service
from tests.server.dashboard.perception import UNNAMED


def test_the_page_answers_while_one_types(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan")
    answer = page.locator("#plan")
    expect(answer).to_contain_text("Likely to fit")
    rows = answer.locator("table.planned tbody tr")
    expect(rows).to_have_count(11)  # ten, and the baseline
    expect(rows.first.locator("svg.stacked")).to_have_count(2)
    bar = rows.first.locator("svg.stacked").first.get_attribute("aria-label") or ""
    assert "matrix products" in bar
    assert page.evaluate(UNNAMED) == []
    before = answer.inner_text()
    page.get_by_label("Nodes", exact=True).first.fill("8")
    expect(answer).to_contain_text("8 nodes")
    assert answer.inner_text() != before
    assert "nodes=8" in page.url
    page.get_by_label("Training tokens").fill("300B")
    expect(answer).to_contain_text("for the training")


def test_a_refused_question_is_answered_in_its_place(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/plan")
    faults[0].expect("422")
    page.get_by_label("Model").fill("gpt-22x")
    expect(page.locator("#plan .refusal")).to_contain_text("gpt-22b")
    page.get_by_label("Model").fill("gpt-22b")
    expect(page.locator("#plan")).to_contain_text("Likely to fit")


def test_what_fits_nowhere_is_mended_by_one_click(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan?model=gpt-175b&machine=frontier&nodes=2")
    answer = page.locator("#plan")
    expect(answer).to_contain_text("fits nowhere within 2 nodes")
    answer.get_by_role("button", name="Try this").first.click()
    expect(answer).to_contain_text("Likely to fit")
    expect(page.get_by_label("Nodes", exact=True).first).to_have_value("8")


def test_the_memory_of_a_strategy_and_what_would_make_it_fit(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan")
    memory, form = page.locator("#memory"), page.locator("#strategy")
    expect(memory).to_contain_text("it fits")
    page.locator("#plan").get_by_role("button", name="Memory of").nth(2).click()
    name = page.locator("table.planned tbody tr").nth(2).locator("th").inner_text()
    virtual_stages = re.search(r"VP (\d+)", name)
    assert virtual_stages
    expect(form.get_by_label("Virtual stages", exact=True)).to_have_value(virtual_stages[1])
    form.get_by_label("Micro-batch size").fill("64")
    expect(memory).to_contain_text("does not fit")
    memory.get_by_role("button", name="Change").first.click()
    expect(memory.locator(".verdict.good")).to_be_visible()
    form.get_by_label("Tensor parallel", exact=True).fill("3")
    expect(memory).to_contain_text("This layout is not valid")


def test_a_campaign_starts_from_a_plan(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan")
    page.get_by_label("Training tokens").fill("1T")
    page.get_by_role("link", name="Start a campaign from this").click()
    page.wait_for_url(re.compile("/campaigns/new"))
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_label("Model", exact=True)).to_have_value("gpt-22b")
    expect(page.get_by_label("Machine")).to_have_value("frontier")
    expect(page.get_by_label("Training tokens")).to_have_value("1T")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))


def test_the_form_says_what_is_known_before_it_runs(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/new", width=390)
    page.get_by_role("button", name="175B on Frontier, simulated").click()
    foreseen = page.locator("#foreseen")
    expect(foreseen).to_contain_text("2,788 layouts")
    page.get_by_label("Preset", exact=True).select_option("")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    expect(foreseen).to_contain_text("fits nowhere")
    foreseen.get_by_role("button", name="Try this").first.click()
    expect(foreseen).to_contain_text("Likely to fit")
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.get_by_role("link", name="Full plan").click()
    page.wait_for_url(re.compile("/plan"))
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_label("Model")).to_have_value("gpt-175b")
    expect(page.get_by_label("Nodes", exact=True).first).to_have_value("8")


def test_the_scaling_of_a_strategy(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan")
    scaling = page.locator("#scaling")
    expect(scaling.locator(".plot canvas")).to_have_count(2)
    table = scaling.locator("table").first
    expect(table).to_contain_text("predicted")
    expect(table).not_to_contain_text("measured")
    assert page.evaluate(UNNAMED) == []
    page.locator("#strategy").get_by_label("Tensor parallel", exact=True).fill("3")
    expect(scaling).to_be_empty()


def test_a_plan_for_a_trainer_and_another_sequence_length(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/plan")
    answer = page.locator("#plan")
    expect(answer).to_contain_text("Likely to fit")
    before = answer.inner_text()
    page.locator("#seq_length").fill("8192")
    expect(answer).not_to_have_text(before, use_inner_text=True)
    assert "model=gpt-22b%2Cseq%3D8192" in page.url
    page.get_by_label("Trainer").select_option("torchtitan-0.2")
    expect(page.locator("#varied")).to_contain_text("does not vary: ")
    assert "adapter=torchtitan-0.2" in page.url
    expect(answer).to_contain_text("Likely to fit")
