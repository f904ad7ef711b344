"""Campaigns in a real browser: listed, drawn, live, and steered."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, expect

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from server.dashboard.rendering import HERE
from server.figures.outcome import Outcome
from tests.server.dashboard.conftest import PATIENCE_MS, Faults, Open, Service
from tests.server.dashboard.perception import LEGEND_PX, UNNAMED, click_mark, drawn, explained

MOST_HEIGHT_PX = 5000
"""Of any part of a campaign's page, in a window of 1280 pixels."""


def test_empty_list_tells_what_to_do_and_fills_itself(own_service: Service, visit: Open) -> None:
    page = visit(own_service.url)
    expect(page.get_by_text("autotune demo")).to_be_visible()
    expect(page.get_by_role("link", name="Fill in the form")).to_be_visible()
    expect(page.locator("#stream")).to_have_text("live")
    campaign = own_service.campaigns.create(name="the first one")
    link = page.get_by_role("link", name="the first one")
    expect(link).to_be_visible()
    expect(page.locator("tbody th .badge")).to_have_text("simulated")
    link.click()
    page.wait_for_url(f"**/campaigns/{campaign.id}")
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_text("Waiting for a runner")).to_be_visible()
    expect(page.locator("#part-answer")).to_contain_text("No trial yet")
    expect(page.locator("#trajectory-card")).to_be_hidden()
    expect(page.get_by_role("tab")).to_have_text(["Answer", "Trials"])


def test_list_has_a_row_for_each_campaign(service: Service, visit: Open) -> None:
    campaign = service.campaigns.done(name="a finished one")
    page = visit(service.url)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="a finished one")).first
    for words in ("done", "TP 1", "gpt-22b", "frontier", "22", "tokens/s"):
        expect(row).to_contain_text(words)
    assert campaign.failures > 0
    expect(row.locator(".failures")).to_have_text(str(campaign.failures))
    expect(row.locator(".spark")).to_have_accessible_name(re.compile("the best rose by"))


def test_the_list_is_searched_and_sorted_by_its_address(own_service: Service, visit: Open) -> None:
    own_service.campaigns.running(ok=2, name="alpha")
    own_service.campaigns.create(name="beta")
    own_service.campaigns.running(ok=2, name="alpha too")
    page = visit(own_service.url)
    names = page.locator("tbody th a")
    expect(names).to_have_text(["alpha too", "beta", "alpha"])
    page.get_by_role("searchbox").fill("alpha running")
    expect(names).to_have_text(["alpha too", "alpha"])
    page.get_by_role("link", name="Campaign", exact=True).click()
    expect(names).to_have_text(["alpha", "alpha too"])
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Campaign")
    expect(page.locator("th[aria-sort=ascending] a")).to_be_focused()
    assert parse_qs(urlsplit(page.url).query) == {"search": ["alpha running"], "sort": ["id"]}
    page.reload()
    expect(names).to_have_text(["alpha", "alpha too"])
    page.get_by_role("searchbox").fill("nowhere")
    expect(page.get_by_text("No campaign matches all of these words: nowhere")).to_be_visible()


def test_finished_campaign_is_drawn_with_its_failures(
    service: Service, done: Campaign, visit: Open
) -> None:
    page = visit(f"{service.url}/campaigns/{done.id}", color_scheme="dark")
    assert drawn(page, Outcome.MEASURED, scheme="dark") > 5 * LEGEND_PX
    page.emulate_media(color_scheme="light")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    assert drawn(page, Outcome.MEASURED) > 5 * LEGEND_PX
    assert drawn(page, Outcome.CONFIRMED) > LEGEND_PX
    assert drawn(page, Outcome.OOM) > 3 * LEGEND_PX
    expect(page).to_have_title("[simulated] gpt-22b on frontier · autotune")
    expect(page.locator(".badge.simulated:visible")).to_have_count(1)
    expect(page.locator("#answer-title")).to_contain_text("Recommendation")
    page.locator(".neighbours summary").click()
    expect(page.get_by_role("region", name="Neighbours").get_by_role("row")).not_to_have_count(0)
    assert page.evaluate(UNNAMED) == []
    for axis in ("Time", "Node-hours"):
        with page.expect_response(lambda answer: "trajectory.vega.json" in answer.url) as answer:
            page.locator("#trajectory-by").get_by_text(axis).click()
        assert answer.value.ok
    page.get_by_role("tab", name="Launch").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all (zip)").click()
    assert Path(download.value.path()).stat().st_size > 500


def test_tabs_are_reached_by_keys_links_and_the_way_back(
    service: Service, done: Campaign, visit: Open
) -> None:
    address = f"{service.url}/campaigns/{done.id}"
    page = explained(visit(address))
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_text(["Answer", "Why", "Space", "Trials", "Launch"])
    expect(page.get_by_role("tabpanel", name="Answer")).to_be_visible()
    tabs.first.press("ArrowRight")
    expect(page.get_by_role("tabpanel", name="Why")).to_be_visible()
    expect(page.get_by_role("tab", name="Why")).to_be_focused()
    expect(page.get_by_role("tabpanel")).to_have_count(1)
    page.keyboard.press("End")
    expect(page.get_by_role("tabpanel", name="Launch")).to_be_visible()
    expect(page).to_have_url(f"{address}#launch")
    page.go_back()
    expect(page.get_by_role("tabpanel", name="Why")).to_be_visible()
    page.goto(f"{address}#space")
    page.reload()
    expect(page.get_by_role("tabpanel", name="Space")).to_be_visible()
    for name in ("Space", "Answer", "Why", "Trials", "Launch"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tabpanel", name=name)).to_be_visible()
        expect(page.locator(".panel:visible .figure:not([hidden]) .plot:empty")).to_have_count(0)
        height = page.evaluate("document.documentElement.scrollHeight")
        assert height < MOST_HEIGHT_PX, name


def test_what_runs_is_shown_with_its_prediction_and_its_log(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(evaluator="slurm", slurm={"profile": "frontier"})
    trial, _ = campaigns.start(campaign, campaigns.strategies(campaign, 2, fitting=True))
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#trajectory-card")).to_be_hidden()
    now = page.get_by_role("region", name="Running and queued trials")
    expect(now).to_contain_text("10 s (80 %: 8 s to 12.5 s)")
    folder = service.settings.trial_dir(trial.token)
    folder.mkdir(parents=True)
    (folder / "trial.log").write_text("iteration 1: 9.8 s")
    campaigns.stand([trial], phase="running", job_id="41", host="n[01-02]")
    expect(now).to_contain_text("job 41, on n[01-02]")
    expect(page.locator("[data-live]")).to_have_text("iteration 1: 9.8 s")
    (folder / "trial.log").write_text("iteration 2: 9.7 s")
    expect(page.locator("[data-live]")).to_have_text("iteration 2: 9.7 s")


def test_equal_failures_are_one_row_that_opens(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=2, too_big=46)
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    rows = page.locator("#trial-rows tr.trial")
    expect(rows).to_have_count(2)
    fold = page.get_by_role("button", name="46 trials")
    expect(page.locator("tr.fold")).to_contain_text("out of memory")
    fold.press("Enter")
    expect(rows).to_have_count(48)
    expect(fold).to_have_attribute("aria-expanded", "true")
    expect(fold).to_be_focused()
    rows.first.click()
    expect(page.locator("tr.detail")).to_contain_text("out of memory")
    fold.click()
    expect(rows).to_have_count(2)


def test_rates_are_on_the_screen_of_a_phone(service: Service, done: Campaign, visit: Open) -> None:
    for path in ("/", f"/campaigns/{done.id}", f"/campaigns/{done.id}#trials", "/plan"):
        page = visit(f"{service.url}{path}", width=390, height=844)
        rates = page.locator("td.rate:visible")
        expect(rates.first).to_be_visible()
        ends = "cells => cells.map((e) => e.getBoundingClientRect().right)"
        assert max(rates.evaluate_all(ends)) <= 390, path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_without_scripts_all_parts_are_shown(
    service: Service, done: Campaign, chromium: Browser
) -> None:
    context = chromium.new_context(java_script_enabled=False)
    service.let_in(context)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    # goto returns once the pictures are loaded: until then they move what is below them.
    page.goto(f"{service.url}/campaigns/{done.id}")
    expect(page.locator(".panel:visible")).to_have_count(5)
    page.get_by_role("link", name="Launch", exact=True).click()
    expect(page.locator("#launch")).to_be_in_viewport()
    picture = page.locator("[data-figure=impact] img")
    picture.scroll_into_view_if_needed()
    expect(picture).to_be_visible()
    picture.evaluate("image => image.decode()")
    assert picture.evaluate("image => image.naturalWidth") > 0
    context.close()


def test_running_campaign_goes_on_before_ones_eyes(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=3, too_big=1)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#stream")).to_have_text("live")
    before = drawn(page, Outcome.OOM)
    page.get_by_role("tab", name="Trials").click()
    page.locator("tr[data-number='2'] .open").click()
    expect(page.locator("tr.detail h3")).to_contain_text("Trial 2")
    started = service.campaigns.start(
        campaign, service.campaigns.strategies(campaign, 3, fitting=False)
    )
    expect(page.locator("tr[data-number='7']")).to_contain_text("pending")
    expect(page.get_by_text("4 of 30 trials finished, 3 running")).to_be_visible()
    service.campaigns.finish(campaign, started)
    expect(page.locator("tr.fold")).to_contain_text("4 trials")
    expect(page.locator("tr.detail h3")).to_contain_text("Trial 2")
    page.get_by_role("tab", name="Answer").click()
    expect(page.locator("#trajectory-summary")).to_contain_text("7 trials finished")
    expect(page.get_by_text("7 of 30 trials finished, 0 running")).to_be_visible()
    page.wait_for_timeout(300)
    assert drawn(page, Outcome.OOM) > before


def test_lost_stream_says_so_and_resumes(
    own_service: Service, visit: Open, faults: list[Faults]
) -> None:
    campaign = own_service.campaigns.running(ok=1)
    page = visit(f"{own_service.url}/campaigns/{campaign.id}#trials")
    faults[0].expect("ERR_CONNECTION_REFUSED")
    faults[0].expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
    faults[0].expect("401")  # until the browser is let in again
    expect(page.locator("#stream")).to_have_text("live")
    own_service.stop()
    expect(page.locator("#stream")).to_have_text("reconnecting…")
    own_service.campaigns.start(
        campaign, own_service.campaigns.strategies(campaign, 1, fitting=True)
    )
    own_service.start()
    own_service.let_in(page.context)
    expect(page.locator("tr[data-number='2']")).to_contain_text("pending")
    expect(page.locator("#stream")).to_have_text("live")


def test_details_of_a_trial(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=4)
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    opener = page.get_by_role("button", name="Details of trial 1")
    opener.press("Enter")
    expect(opener).to_have_attribute("aria-expanded", "true")
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("accumulation steps")
    expect(detail.locator(".chosen")).to_contain_text("12 % above the best so far")
    expect(detail.locator(".log")).to_contain_text("SIMULATED: no training took place")
    opener.press("Enter")
    expect(detail).to_have_count(0)


def test_what_the_table_shows_is_in_the_address(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=5, too_big=2)
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    page.get_by_role("button", name="TP", exact=True).click()
    page.get_by_role("combobox", name="State").select_option("ok")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(5)
    first = page.locator("#trial-rows tr").first
    first.locator(".open").click()
    expect(page.locator("tr.detail")).to_have_count(1)
    number = first.get_attribute("data-number")
    noted = {"state": ["ok"], "sort": ["tensor_parallel"], "trial": [number]}
    assert parse_qs(urlsplit(page.url).query) == noted
    page.get_by_role("tab", name="Answer").click()
    page.locator("#trajectory-by").get_by_text("Node-hours").click()
    expect(page).to_have_url(re.compile("by=node_hours.*#answer"))
    again = visit(page.url)
    expect(again.get_by_role("radio", name="Node-hours")).to_be_checked()
    again.get_by_role("tab", name="Trials").click()
    expect(again.get_by_role("combobox", name="State")).to_have_value("ok")
    expect(again.locator("#trials th", has_text="TP")).to_have_attribute("aria-sort", "ascending")
    expect(again.locator("#trial-rows tr.trial")).to_have_count(5)
    expect(again.locator("tr.detail")).to_have_count(1)
    best = again.locator(f"tr[data-number='{campaign.best_trial}']")
    expect(best).to_contain_text("100.0 %")
    page.go_back()
    expect(page.get_by_role("radio", name="Trial")).to_be_checked()
    page.go_back()
    expect(page.get_by_role("tabpanel", name="Trials")).to_be_visible()
    page.go_back()
    expect(page.locator("tr.detail")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("combobox", name="State")).to_have_value("")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(7)


def test_what_an_address_says_of_nothing_is_left_out(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=2)
    query = "state=none&purpose=0&sort=--tp&trial=999999&by=moon&also=x&num_nodes=-1&utm=%00#what"
    page = visit(f"{service.url}/campaigns/{campaign.id}?{query}")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(2)
    expect(page.locator("#trajectory-by [value=trial]")).to_be_checked()
    expect(page.locator("#trials th[aria-sort]", has_text="Trial")).to_have_attribute(
        "aria-sort", "descending"
    )


def test_what_all_trials_share_is_shown_once_until_one_differs(
    service: Service, visit: Open
) -> None:
    campaign = service.campaigns.running(ok=3, space={"micro_batch_size": [1], "num_nodes": [4]})
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    head = page.locator("#trials thead")
    expect(page.locator("#trials-constant")).to_contain_text("MBS 1")
    expect(page.locator("#trials-constant")).to_contain_text("4 nodes · full recompute · bf16")
    expect(head.get_by_role("button", name="MBS")).to_have_count(0)
    page.locator("tr[data-number='2'] .open").click()
    (strategy,) = service.campaigns.strategies(campaign, 1, fitting=True)
    service.campaigns.start(campaign, [replace(strategy, micro_batch_size=2)])
    expect(head.get_by_role("button", name="MBS")).to_be_visible()
    expect(page.locator("#trials-constant")).not_to_contain_text("MBS")
    width = head.get_by_role("columnheader").count()
    expect(page.locator("tr.detail td").first).to_have_attribute("colspan", str(width))
    expect(page.locator("tr[data-number='4'] td")).to_have_count(width - 4)
    page.get_by_role("link", name="Duplicate").click()
    page.wait_for_url(f"**/campaigns/new?like={campaign.id}")
    expect(page.locator("[name='space.micro_batch_size']")).to_have_value("1")


def test_a_mark_opens_its_trial_though_a_filter_hides_it(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=5, too_big=2)
    assert campaign.best_trial is not None
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}", reduced_motion="reduce"))
    page.get_by_role("tab", name="Trials").click()
    page.get_by_role("combobox", name="State").select_option("oom")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(campaign.failures)
    page.get_by_role("tab", name="Answer").click()
    click_mark(page, campaign.best_trial)
    opener = page.get_by_role("button", name=f"Details of trial {campaign.best_trial}")
    expect(opener).to_have_attribute("aria-expanded", "true")
    expect(page.get_by_role("combobox", name="State")).to_have_value("oom")
    expect(page.locator("#trial-rows tr.trial").first).to_have_attribute(
        "data-number", str(campaign.best_trial)
    )


def test_pages_scroll_smoothly_unless_less_motion_is_wished(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/compare", reduced_motion="reduce")
    style = "getComputedStyle(document.documentElement).scrollBehavior"
    assert page.evaluate(style) == "auto"
    page.emulate_media(reduced_motion="no-preference")
    assert page.evaluate(style) == "smooth"
    scripts = (HERE / "static").glob("*.js")
    assert not any("behavior:" in script.read_text() for script in scripts)


@pytest.mark.soak
def test_thousands_of_trials_on_a_phone(service: Service, visit: Open) -> None:
    campaign = service.campaigns.many(3010)
    page = visit(f"{service.url}/campaigns/{campaign.id}", width=390, height=844)
    expect(page.locator("#trajectory-thinned")).to_contain_text("of 3010 marks are drawn")
    assert drawn(page, Outcome.MEASURED) > 20 * LEGEND_PX
    assert drawn(page, Outcome.OOM) > 3 * LEGEND_PX
    page.get_by_role("tab", name="Trials").click()
    expect(page.locator("#trial-rows tr.trial")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#trial-rows tr.trial")).to_have_count(200)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_pause_resume_cancel_and_delete(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    campaign = service.campaigns.running(ok=1)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    # An update that is under way when the campaign is deleted finds nothing.
    faults[0].expect("404")
    faults[0].expect("there is no campaign")
    state = page.locator("#summary .head .state")
    page.get_by_role("button", name="Pause").click()
    expect(state).to_have_text("paused")
    assert service.campaigns.read(campaign).state is CampaignState.PAUSED
    page.get_by_role("button", name="Resume").click()
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Keep it").click()
    expect(state).to_have_text("running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the campaign").click()
    expect(state).to_have_text("cancelled")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete the campaign").click()
    page.wait_for_url(service.url + "/")


def test_budget_is_extended(service: Service, visit: Open, faults: list[Faults]) -> None:
    campaign = service.campaigns.done()
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    faults[0].expect("422")
    page.get_by_role("button", name="Extend budget").click()
    page.get_by_label("Maximum trials, in total").fill("10")
    page.get_by_role("button", name="Extend", exact=True).click()
    expect(page.locator("#extend .field-error")).to_contain_text("the budget has 30 already")
    page.get_by_label("Maximum trials, in total").fill("50")
    page.get_by_role("button", name="Extend", exact=True).click()
    expect(page.locator("#summary .head .state")).to_have_text("running")
    assert service.campaigns.read(campaign).request.budget.max_trials == 50


def test_knobs_are_shown_with_their_gains_and_the_noise(service: Service, visit: Open) -> None:
    campaign = service.campaigns.with_knobs()
    page = explained(visit(f"{service.url}/campaigns/{campaign.id}", width=390))
    knobs = page.locator("#part-knobs")
    expect(knobs).to_contain_text("Use overlap = off and reduce_bucket = 50000000: 5.9 % faster")
    expect(knobs).to_contain_text("The launch files have them.")
    expect(knobs.locator("tbody tr")).to_have_count(5)
    expect(knobs.locator("tbody tr").last).to_contain_text("A start failed.")
    expect(page.locator("[data-figure=knobs] canvas")).to_be_visible()
    more = page.locator("#part-more")
    expect(more).to_contain_text(re.compile(r"Differences below 0\.\d % are noise here\."))
    expect(more.locator(".claims")).to_contain_text(
        "bf16, 87,381 tokens/s"
    )  # without knobs' starts
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.get_by_text("Details").first.click()
    expect(page.locator(".about")).to_contain_text(
        "2 trials, 2 confirmations and 21 starts of knobs"
    )
    assert page.evaluate(UNNAMED) == []
    page.get_by_text("Details").first.click()
    page.get_by_role("button", name="Extend budget").click()
    page.get_by_label("Knobs to try on the best layout").fill("prefetch_bucket")
    page.get_by_role("button", name="Extend", exact=True).click()
    expect(page.locator("#summary .head .state")).to_have_text("confirming")
    assert service.campaigns.read(campaign).request.knobs[-1] == "prefetch_bucket"


def test_starts_of_knobs_are_marked_and_counted(service: Service, visit: Open) -> None:
    campaign = service.campaigns.with_knobs(state=CampaignState.CONFIRMING)
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    expect(page.locator(".progress")).to_contain_text(
        "2 trials searched; trying knobs on the best: 21 starts so far, 0 running"
    )
    page.get_by_label("Purpose").select_option("knob")
    rows = page.locator("#trial-rows tr.trial")
    expect(rows).to_have_count(21)
    expect(rows.first.locator(".outcome")).to_contain_text("knob")
    expect(rows.first).to_contain_text("overlap off")
    rows.first.locator(".open").click()
    expect(page.locator(".detail-body .chosen")).to_contain_text("A start of the best layout with")
