"""The answer of a campaign on its page: what won, why, what lies beyond, and why nothing ran."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import Trial
from server.dashboard.rendering import TEMPLATES
from server.store.campaigns import get_campaign
from tests.autotune.recommendation.examples import A, B, answer, campaign, trial
from tests.autotune.recommendation.test_projected import FULL, narrow
from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import UNNAMED, explained

TOO_LARGE: dict[str, Any] = {
    "model": "gpt-175b",
    "nodes": 16,
    "space": {
        "tensor_parallel": [4, 8],
        "pipeline_parallel": [4, 8],
        "micro_batch_size": [4, 8],
        "gradient_accumulation_steps": [10],
        "zero_stage": [1],
    },
}


MOST_WORDS = 60
"""On the card of the answer, numbers and units included."""


def fits_the_screen(page: Page) -> bool:
    found: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found


def test_the_answer_stands_first_with_why_it_won(
    service: Service, done: Campaign, visit: Open
) -> None:
    page = explained(visit(f"{service.url}/campaigns/{done.id}"))
    card = page.locator(".answer")
    expect(page.locator("main section").first).to_have_class(re.compile("answer"))
    for words in ("tokens/s", "the best of its space (", "GiB", "MFU"):
        expect(card).to_contain_text(words)
    assert len(card.inner_text().split()) <= MOST_WORDS
    expect(page.locator("#trajectory canvas")).to_be_in_viewport()
    more = page.locator("#part-more")
    for words in ("confirmed", "(assumed: 20 for each parameter)", "dense 16-bit peak of 192 TF"):
        expect(more).to_contain_text(words)
    rate = card.locator(".headline strong")
    assert rate.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") > 40
    used, total = re.findall(r"[\d.]+", card.locator(".room dd").inner_text())
    share = card.locator("meter").evaluate("e => e.value / e.max")
    assert float(used) / float(total) == pytest.approx(share, abs=0.01)
    card.get_by_text("Caveats").click()
    expect(card.locator(".caveats li").first).to_be_visible()
    page.get_by_role("tab", name="Why").click()
    why = page.locator(".why")
    expect(why.get_by_text(" takes ").first).to_be_visible()
    for kind, caption, part in (
        ("parts", "takes", "matrix products"),
        ("memory_parts", "the dashed line is the usable memory", "activations"),
    ):
        figure = page.locator(f"[data-figure={kind}]")
        expect(figure.locator("canvas")).to_be_visible()
        expect(figure.locator("[data-caption]")).to_contain_text(caption)
        figure.get_by_text("Table", exact=True).click()
        expect(figure.get_by_role("table")).to_contain_text(part)
        expect(figure.get_by_role("columnheader", name="Best:")).to_be_visible()
    assert page.evaluate(UNNAMED) == []


def test_the_launch_script_is_shown_with_its_needs_and_copied(
    service: Service, done: Campaign, visit: Open
) -> None:
    page = visit(
        f"{service.url}/campaigns/{done.id}#launch",
        permissions=["clipboard-read", "clipboard-write"],
    )
    launch = page.locator(".launch")
    expect(launch.locator(".needs")).to_contain_text("TRAINER_DIR")
    expect(launch).not_to_contain_text("runs as it is")
    launch.get_by_text("Preview").click()
    expect(launch.locator("pre")).to_contain_text("#SBATCH --nodes=")
    launch.get_by_role("button", name="Copy train.sbatch").click()
    expect(launch.get_by_role("status")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()").startswith("#!/bin/bash")
    trainers = page.locator(".trainers")
    expect(trainers.get_by_role("listitem")).to_have_count(5)
    expect(trainers).to_contain_text("transformers: has no")
    with page.expect_download() as download:
        trainers.get_by_role("link", name="megatron-bridge (zip)").click()
    assert download.value.suggested_filename == f"campaign-{done.id}-rank-1-megatron-bridge.zip"


def test_beyond_the_edge_is_one_click(service: Service, visit: Open) -> None:
    campaign = service.campaigns.done(budget={"max_trials": 22, "train_tokens": 1e9})
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}#why"))
    expect(page.get_by_role("heading", name="What if the space were larger?")).to_be_visible()
    page.locator(".changes").get_by_role("link", name="Try this").first.click()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#filled")).to_contain_text(
        "Settings copied from gpt-22b on frontier, except for:"
    )
    expect(page.locator("#space-tensor_parallel")).to_have_value("1, 2, 4, 8")
    expect(page.locator("#budget-train_tokens")).to_have_value("1B")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    with service.campaigns.store.session() as session:
        other = get_campaign(session, int(page.url.rpartition("/")[2])).request
    assert other.space != campaign.request.space
    assert other.nodes == campaign.request.nodes


def test_the_cause_and_a_one_click_remedy_show_if_nothing_ran(
    service: Service, visit: Open
) -> None:
    campaign = service.campaigns.running(too_big=6, **TOO_LARGE)
    service.campaigns.move(campaign, CampaignState.DONE, reason="all layouts are known")
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}", width=390, height=844))
    expect(page.locator("#summary .state")).to_have_text("nothing ran")
    expect(page.get_by_text("Every trial failed")).to_be_visible()
    why = page.locator(".why")
    expect(why).to_contain_text(re.compile(r"All 6 trials ran out of memory: .* GiB"))
    assert fits_the_screen(page)
    expect(why.locator("li").first).to_contain_text(
        re.compile(r"^\s*With .* GiB\. .* likely to fit")
    )
    why.get_by_role("link", name="Try this").first.click()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#filled")).to_contain_text("except for: ")
    expect(page.locator("#model")).to_have_value("gpt-175b")


def test_a_crash_shows_once_with_its_log_and_what_to_run(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    error = "train.py: error: unrecognized arguments: --bf16"
    campaign = campaigns.running(evaluator="slurm", slurm={"profile": "frontier"})
    for each in campaigns.start(campaign, campaigns.strategies(campaign, 3, fitting=True)):
        log = campaigns.settings.trial_dir(each.token) / "trial.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"usage: train.py [-h]\n{error}\n")
        campaigns.end(campaign, each, TrialState.CRASHED, error=error, log_path=str(log))
    reason = f"all 3 trials crashed with the same error: {error}"
    campaigns.move(campaign, CampaignState.PAUSED, reason=reason)
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}"))
    expect(page.get_by_text("3 trials crashed with the same error")).to_have_count(1)
    expect(page.locator(".why .log")).to_contain_text(error)
    expect(page.locator(".why code")).to_have_text(
        [f"autotune resume {campaign.id}", f"autotune submit --like {campaign.id}"]
    )
    expect(page.get_by_role("tab")).to_have_text(["Answer", "Space", "Trials"])
    page.get_by_role("tab", name="Answer").press("End")
    expect(page.get_by_role("tab", name="Trials")).to_be_focused()
    campaigns.move(campaign, CampaignState.CANCELLED, reason="cancelled by the user")
    expect(page.locator(".cause")).to_have_text(f"All{reason.removeprefix('all')}")
    expect(page.locator(".why code")).to_have_text([f"autotune submit --like {campaign.id}"])


def test_why_follows_the_campaign(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(too_big=1)
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}"))
    expect(page.locator(".why")).to_contain_text("The only trial ran out of memory")
    expect(page.get_by_text("Every trial has failed so far")).to_be_visible()
    expect(page.locator("#trajectory-card")).to_be_hidden()  # its axes would be empty
    strategies = service.campaigns.strategies(campaign, 2, fitting=True)
    service.campaigns.finish(campaign, service.campaigns.start(campaign, strategies))
    expect(page.locator(".answer")).to_contain_text("provisional")
    page.get_by_role("tab", name="Why").click()
    expect(page.locator(".why h2")).to_contain_text("Why it won")


def test_a_long_title_is_shown_whole(service: Service, visit: Open) -> None:
    name = "70B on the eight nodes of the new partition, with long sequences and fp8"
    page = visit(f"{service.url}/campaigns/{service.campaigns.create(name=name).id}")
    title = page.locator("#summary h1")
    expect(title).to_have_text(name)
    assert title.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert fits_the_screen(page)


def card(*trials: Trial) -> str:
    templates = map(TEMPLATES.env.get_template, ("_answer.html", "_more.html"))
    shown = {"campaign": campaign(), "recommendation": answer([*trials]), "baseline": None}
    return "".join(template.render(shown) for template in templates)


def test_a_projected_best_says_from_how_many_nodes() -> None:
    projected = card(narrow(1, FULL, seconds=2.0))
    assert "projected from" in projected
    assert "simulated, confirmed" not in projected


def test_the_card_gives_a_trainings_saving_and_the_break_even() -> None:
    text = card(trial(1, A, seconds=3.0, purpose="baseline"), trial(2, B, seconds=1.0))
    assert "3 times as fast as a default layout" in text
    assert re.search(r"saves .* node-hours and .* MWh compared with the baseline", text)
    assert "repaid after" in text
    assert "assumed" not in text
    alone = card(trial(1, A, seconds=3.0, purpose="baseline"))
    assert "times as fast" not in alone
    assert "A default layout is the best so far" in alone
