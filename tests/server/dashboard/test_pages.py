"""The pages in a real browser: drawn, live, steered, and without a complaint in the console."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from autotune.schemas import CampaignState, SlurmChoice
from evaluators.trial import TrialStatus
from server.dashboard.charts import PALETTES, Scheme
from server.dashboard.series import Outcome
from server.store.queries import get_campaign
from tests.server.dashboard.conftest import Faults, Open, Service

FREE_NODES = "waiting for free nodes (Resources)"
DANGER = "rgb(176, 58, 0)"

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


def drawn(page: Page, outcome: Outcome, *, scheme: Scheme = "light") -> int:
    """Pixels of this outcome's colour in the trajectory."""
    canvas = page.locator("#trajectory canvas")
    found: int = canvas.evaluate(COUNT_COLOUR, PALETTES[scheme].of(outcome))
    return found


LEGEND_PX = 60
"""At most this many pixels of a colour are the legend's symbol."""


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
    expect(page.get_by_text("No trial yet")).to_be_visible()
    expect(page.locator("#trajectory-summary")).to_have_text("No trial has finished yet.")
    expect(page.locator("#recommendation")).to_be_empty()


def test_list_has_a_row_for_each_campaign(service: Service, visit: Open) -> None:
    campaign = service.campaigns.done(name="a finished one")
    page = visit(service.url)
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="a finished one")).first
    for words in ("done", "gpt-22b", "frontier", "22", "tokens/s"):
        expect(row).to_contain_text(words)
    assert campaign.failures > 0
    expect(row.locator(".failures")).to_have_text(str(campaign.failures))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_finished_campaign_is_drawn_with_its_failures(
    service: Service, visit: Open, scheme: Scheme
) -> None:
    campaign = service.campaigns.done()
    page = visit(f"{service.url}/campaigns/{campaign.id}", color_scheme=scheme)
    assert drawn(page, Outcome.MEASURED, scheme=scheme) > 5 * LEGEND_PX
    assert drawn(page, Outcome.CONFIRMED, scheme=scheme) > LEGEND_PX
    assert drawn(page, Outcome.OOM, scheme=scheme) > 3 * LEGEND_PX
    expect(page).to_have_title("[simulated] gpt-22b on frontier · autotune")
    expect(page.locator("#trajectory-title .simulated")).to_be_visible()
    expect(page.locator("#recommendation-title")).to_contain_text("Recommendation")
    expect(page.locator("#recommendation .simulated")).to_be_visible()
    assert page.evaluate(UNNAMED) == []
    with page.expect_download() as download:
        page.get_by_role("link", name="Download all (zip)").click()
    assert Path(download.value.path()).stat().st_size > 500
    for axis in ("Time", "Node-hours"):
        with page.expect_response(lambda answer: "trajectory.vega.json" in answer.url) as answer:
            page.locator("#trajectory-by").get_by_text(axis).click()
        assert answer.value.ok


def test_running_campaign_goes_on_before_ones_eyes(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=3, too_big=1)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#stream")).to_have_text("live")
    page.locator("tr[data-number='2'] .open").click()
    expect(page.locator("tr.detail h3")).to_contain_text("Trial 2")
    before = drawn(page, Outcome.OOM)
    started = service.campaigns.start(
        campaign, service.campaigns.strategies(campaign, 3, fitting=False)
    )
    expect(page.locator("tr[data-number='7']")).to_contain_text("pending")
    expect(page.get_by_text("4 of 30 trials finished, 3 running")).to_be_visible()
    service.campaigns.finish(campaign, started)
    expect(page.locator("tr[data-number='7'] .state")).to_have_text("oom")
    expect(page.locator("#trajectory-summary")).to_contain_text("7 trials finished")
    expect(page.get_by_text("7 of 30 trials finished, 0 running")).to_be_visible()
    page.wait_for_timeout(300)
    assert drawn(page, Outcome.OOM) > before
    expect(page.locator("tr.detail h3")).to_contain_text("Trial 2")


def test_lost_stream_says_so_and_resumes(
    own_service: Service, visit: Open, faults: list[Faults]
) -> None:
    campaign = own_service.campaigns.running(ok=1)
    page = visit(f"{own_service.url}/campaigns/{campaign.id}")
    faults[0].expect("ERR_CONNECTION_REFUSED")
    faults[0].expect("ERR_INCOMPLETE_CHUNKED_ENCODING")
    expect(page.locator("#stream")).to_have_text("live")
    own_service.stop()
    expect(page.locator("#stream")).to_have_text("reconnecting…")
    own_service.campaigns.start(
        campaign, own_service.campaigns.strategies(campaign, 1, fitting=True)
    )
    own_service.start()
    expect(page.locator("tr[data-number='2']")).to_contain_text("pending")
    expect(page.locator("#stream")).to_have_text("live")


def test_details_of_a_trial(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=4)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    opener = page.get_by_role("button", name="Details of trial 3")
    opener.press("Enter")
    expect(opener).to_have_attribute("aria-expanded", "true")
    detail = page.locator("tr.detail")
    expect(detail.locator("canvas")).to_be_visible()
    expect(detail.locator(".log")).to_contain_text("SIMULATED: no training took place")
    detail.get_by_text("As a table").click()
    expect(detail.locator("td").filter(has_text="measured").first).to_be_visible()
    opener.press("Enter")
    expect(detail).to_have_count(0)


def test_trials_are_sorted_and_filtered(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=5, too_big=2)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    first = page.locator("#trial-rows tr").first
    expect(first).to_have_attribute("data-number", "7")
    page.get_by_role("button", name="Tokens/s").click()
    expect(first).to_have_attribute("data-number", str(campaign.best_trial))
    header = page.locator("#trials th", has_text="Tokens/s")
    expect(header).to_have_attribute("aria-sort", "descending")
    page.get_by_label("State").select_option("oom")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(campaign.failures)


def test_all_failed(service: Service, visit: Open) -> None:
    campaign = service.campaigns.running(ok=6, protocol={"time_limit_s": 1.0})
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.get_by_text("Every trial has failed so far.")).to_be_visible()
    expect(page.locator("#trajectory-summary")).to_contain_text("6 failures (6 time limit)")
    assert drawn(page, Outcome.TIMEOUT) > 3 * LEGEND_PX
    assert drawn(page, Outcome.MEASURED) < 2 * LEGEND_PX


def test_thousands_of_trials_on_a_phone(service: Service, visit: Open) -> None:
    campaign = service.campaigns.many(3200)
    page = visit(f"{service.url}/campaigns/{campaign.id}", width=390, height=844)
    expect(page.locator("#trajectory-thinned")).to_contain_text("of 3200 marks are drawn")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(100)
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#trial-rows tr.trial")).to_have_count(200)
    assert drawn(page, Outcome.MEASURED) > 20 * LEGEND_PX
    assert drawn(page, Outcome.OOM) > 3 * LEGEND_PX
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
    page.get_by_label("Most trials, in all").fill("10")
    page.get_by_role("button", name="Extend", exact=True).click()
    expect(page.locator("#extend .field-error")).to_contain_text("the budget has 30 already")
    page.get_by_label("Most trials, in all").fill("50")
    page.get_by_role("button", name="Extend", exact=True).click()
    expect(page.locator("#summary .head .state")).to_have_text("running")
    assert service.campaigns.read(campaign).request.budget.max_trials == 50


def test_form_shows_refusals_at_their_fields_and_keeps_what_was_typed(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect("422")
    assert page.evaluate(UNNAMED) == []
    page.get_by_label("Nodes", exact=True).first.fill("zero")
    page.get_by_label("Most trials").fill("0")
    page.get_by_role("button", name="Check").click()
    nodes = page.locator("#nodes")
    expect(nodes).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#error-nodes")).to_contain_text("integer")
    expect(page.locator("#error-budget-max_trials")).to_contain_text("greater than 0")
    expect(nodes).to_have_value("zero")
    nodes.fill("1")
    page.get_by_label("Most trials").fill("5")
    page.get_by_label("Model", exact=True).fill("gpt-22x")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-model")).to_contain_text("gpt-22b")
    expect(page.locator("#error-nodes")).to_have_count(0)


def test_form_checks_and_submits(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/new")
    page.get_by_role("button", name="175B on Frontier, simulated").click()
    page.get_by_role("button", name="Check").click()
    report = page.locator("#report")
    for words in ("3,264", "2,788", "Layouts to try", "world_size", "Node-hours, expected"):
        expect(report).to_contain_text(words)
    page.get_by_text("Measurement, seed and name").click()
    page.get_by_label("Name", exact=True).fill("from the form")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_role("heading", level=1)).to_have_text("from the form")


def test_form_takes_an_own_shape_and_dimensions(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/new", width=390)
    page.get_by_label("Own shape").check()
    for label, value in (("Layers", "8"), ("Hidden size", "1024"), ("Attention heads", "16")):
        page.get_by_label(label, exact=True).fill(value)
    page.get_by_label("Machine").select_option("frontier")
    page.get_by_label("Evaluator").select_option("simulated")
    page.get_by_text("Dimensions", exact=True).click()
    page.get_by_label("Tensor parallel").fill("1, 2")
    page.get_by_label("Pipeline parallel").fill("1..2")
    page.get_by_label("Micro batch size").fill("4")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    number = int(page.url.rpartition("/")[2])
    with service.campaigns.store.session() as session:
        request = get_campaign(session, number).request
    assert not isinstance(request.model, str)
    assert request.model.num_layers == 8
    assert request.space.tensor_parallel == [1, 2]
    assert request.space.micro_batch_size == 4
    assert request.tokens == 300e9


def test_form_asks_for_a_profile_only_where_trials_go_to_slurm(
    service: Service, visit: Open, faults: list[Faults]
) -> None:
    page = visit(f"{service.url}/campaigns/new")
    faults[0].expect("422")
    profile, machine = page.get_by_label("Cluster profile"), page.get_by_label("Machine")
    expect(profile).to_be_hidden()
    expect(page.get_by_label("Jobs")).to_be_hidden()
    page.get_by_label("Evaluator").select_option("slurm")
    expect(profile).to_have_value("")
    expect(machine).to_have_value("")
    assert page.evaluate(UNNAMED) == []
    page.get_by_label("Model", exact=True).fill("gpt-22b")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-slurm-profile")).to_be_visible()
    expect(page.locator("#error-machine")).to_be_visible()
    profile.select_option("frontier")
    expect(machine).to_have_value("frontier")
    page.get_by_label("Jobs").select_option("pilot")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    page.get_by_role("button", name="Start the campaign").click()
    page.wait_for_url(re.compile(r"/campaigns/\d+$"))
    page.wait_for_selector("body[data-ready]")
    expect(page.get_by_text("with the profile frontier, as steps inside one")).to_be_visible()
    with service.campaigns.store.session() as session:
        request = get_campaign(session, int(page.url.rpartition("/")[2])).request
    assert request.slurm == SlurmChoice(profile="frontier", mode="pilot")


def test_form_forgets_the_profile_of_another_evaluator(service: Service, visit: Open) -> None:
    page = visit(f"{service.url}/campaigns/new")
    page.get_by_label("Evaluator").select_option("slurm")
    page.get_by_label("Cluster profile").select_option("frontier")
    page.get_by_label("Evaluator").select_option("simulated")
    page.get_by_label("Model", exact=True).fill("gpt-22b")
    page.get_by_label("Nodes", exact=True).first.fill("2")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#report")).to_contain_text("Layouts to try")


def test_form_offers_ones_own_profiles_first_and_says_what_is_wrong_with_one(
    own_service: Service, visit: Open, faults: list[Faults]
) -> None:
    folder = own_service.settings.profiles_dir
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('description = "Ours. More of it."\nmachine = "frontier"')
    (folder / "broken.toml").write_text('[slurm]\npartitoin = "batch"')
    page = visit(f"{own_service.url}/campaigns/new")
    faults[0].expect("422")
    page.get_by_label("Evaluator").select_option("slurm")
    profile = page.get_by_label("Cluster profile")
    expect(profile).to_have_value("mine")
    expect(profile.locator("option").first).to_have_text("mine: Ours")
    expect(page.get_by_label("Machine")).to_have_value("frontier")
    profile.select_option("broken")
    page.get_by_role("button", name="Check").click()
    expect(page.locator("#error-slurm-profile")).to_contain_text("slurm.partitoin")


@pytest.mark.parametrize("width", [1400, 390])
def test_queued_campaign_tells_waiting_from_running(
    service: Service, visit: Open, width: int
) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(ok=2, evaluator="slurm", slurm={"profile": "frontier"})
    trials = campaigns.start(campaign, campaigns.strategies(campaign, 3, fitting=True))
    campaigns.stand(trials, phase="waiting", reason=FREE_NODES, job_id="41")
    page = visit(f"{service.url}/campaigns/{campaign.id}", width=width)
    expect(page.get_by_text("2 of 30 trials finished, 0 running, 3 waiting")).to_be_visible()
    told = page.locator("#summary").get_by_text(f"3 trials not started yet: {FREE_NODES}")
    expect(told).to_be_visible()
    row = page.locator(f"tr[data-number='{trials[0].number}']")
    expect(row.locator(".state")).to_have_text("waiting")
    expect(row.locator(".error-line")).to_have_text(FREE_NODES)
    row.locator(".open").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("Waiting for free nodes (Resources)")
    expect(detail).to_contain_text("There is none yet.")
    campaigns.stand(trials[:1], phase="running", job_id="41", host="n[01-02]")
    expect(row.locator(".state")).to_have_text("running")
    expect(row.locator(".error-line")).to_have_text("job 41, on n[01-02]")
    expect(detail.locator("dl", has_text="Slurm job")).to_contain_text("41")
    tile = page.locator("#summary .tiles > div", has_text="Running now")
    expect(tile).to_have_text(re.compile(r"Running now\s*1\s*trial; 2 waiting"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ends_of_a_queue_are_told_apart(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(ok=1, evaluator="slurm", slurm={"profile": "frontier"})
    ends = [TrialStatus.PREEMPTED, TrialStatus.REFUSED, TrialStatus.NODE_FAIL, TrialStatus.LOST]
    trials = campaigns.start(campaign, campaigns.strategies(campaign, len(ends), fitting=True))
    for trial, status in zip(trials, ends, strict=True):
        campaigns.end(campaign, trial, status, error=f"was {status}", energy_note="no power tool")
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#trajectory-summary")).to_contain_text("4 failures (4 lost or refused)")
    assert drawn(page, Outcome.OTHER) > 2 * LEGEND_PX
    for trial, status in zip(trials, ends, strict=True):
        badge = page.locator(f"tr[data-number='{trial.number}'] .state")
        expect(badge).to_have_text(status.value.replace("_", " "))
        expect(badge).to_have_css("color", DANGER)
    page.get_by_label("State").select_option("preempted")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(1)
    page.locator(f"tr[data-number='{trials[0].number}'] .open").click()
    expect(page.locator("tr.detail")).to_contain_text("no power tool")


def test_energy_that_was_sampled(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(evaluator="slurm", slurm={"profile": "frontier"})
    [trial] = campaigns.start(campaign, campaigns.strategies(campaign, 1, fitting=True))
    note = "nvidia-smi on 2 nodes"
    sampled = {"joules_per_token": 0.0421, "energy_note": note, "error": "x"}
    campaigns.end(campaign, trial, TrialStatus.CRASHED, **sampled)
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    page.get_by_role("button", name="Details of trial 1").click()
    expect(page.locator("tr.detail")).to_contain_text(f"0.0421 J/token ({note})")
    expect(page.get_by_text("autotune doctor --profile frontier")).to_be_visible()
