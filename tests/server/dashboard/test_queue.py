"""Campaigns on Slurm in a real browser: waiting, running, and each way a trial may end."""

from __future__ import annotations

from playwright.sync_api import expect

from autotune.schemas.choices import TrialState
from server.figures.outcome import Outcome
from tests.server.dashboard.conftest import Open, Service
from tests.server.dashboard.perception import LEGEND_PX, drawn

FREE_NODES = "waiting for free nodes (Resources)"
DANGER = "rgb(176, 58, 0)"


def test_queued_campaign_tells_waiting_from_running(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(ok=2, evaluator="slurm", slurm={"profile": "frontier"})
    trials = campaigns.start(campaign, campaigns.strategies(campaign, 3, fitting=True))
    campaigns.stand(trials, phase="waiting", reason=FREE_NODES, job_id="41")
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    expect(page.get_by_text("2 of 30 trials finished, 0 running, 3 waiting")).to_be_visible()
    note = page.locator("#summary").get_by_text(f"3 trials not started yet: {FREE_NODES}")
    expect(note).to_be_visible()
    row = page.locator(f"tr[data-number='{trials[0].number}']")
    expect(row.locator(".state")).to_have_text("waiting")
    expect(row.locator(".error-line")).to_have_text(FREE_NODES)
    row.locator(".open").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text("Waiting for free nodes (Resources)")
    expect(detail).to_contain_text("No log yet.")
    campaigns.stand(trials[:1], phase="running", job_id="41", host="n[01-02]")
    expect(row.locator(".state")).to_have_text("running")
    expect(row.locator(".error-line")).to_have_text("job 41, on n[01-02]")
    expect(detail.locator("dl", has_text="Job")).to_contain_text("41")
    expect(page.locator("#summary .progress")).to_contain_text("1 running, 2 waiting for nodes")
    silent = "Slurm does not answer since 14:02 (connect failure)"
    campaigns.stand(trials[:1], phase="running", reason=silent, job_id="41", host="n[01-02]")
    expect(row.locator(".error-line")).to_have_text(f"job 41, on n[01-02]; {silent}")
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_ends_of_a_queue_are_distinguished(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(ok=1, evaluator="slurm", slurm={"profile": "frontier"})
    ends = [TrialState.PREEMPTED, TrialState.REFUSED, TrialState.NODE_FAIL, TrialState.LOST]
    trials = campaigns.start(campaign, campaigns.strategies(campaign, len(ends), fitting=True))
    for trial, status in zip(trials, ends, strict=True):
        campaigns.end(campaign, trial, status, error=f"was {status}", energy_note="no power tool")
    page = visit(f"{service.url}/campaigns/{campaign.id}")
    expect(page.locator("#trajectory-summary")).to_contain_text("4 failures (4 lost or refused)")
    assert drawn(page, Outcome.OTHER) > 2 * LEGEND_PX
    page.get_by_role("tab", name="Trials").click()
    for trial, status in zip(trials, ends, strict=True):
        badge = page.locator(f"tr[data-number='{trial.number}'] .state")
        expect(badge).to_have_text(status.value.replace("_", " "))
        expect(badge).to_have_css("color", DANGER)
    page.get_by_role("combobox", name="State").select_option("preempted")
    expect(page.locator("#trial-rows tr.trial")).to_have_count(1)
    page.locator(f"tr[data-number='{trials[0].number}'] .open").click()
    expect(page.locator("tr.detail")).to_contain_text("no power tool")


def test_energy_that_was_sampled(service: Service, visit: Open) -> None:
    campaigns = service.campaigns
    campaign = campaigns.running(evaluator="slurm", slurm={"profile": "frontier"})
    [trial] = campaigns.start(campaign, campaigns.strategies(campaign, 1, fitting=True))
    note = "nvidia-smi on 2 nodes"
    sampled = {"gpu_joules_per_token": 0.0421, "energy_note": note, "error": "x"}
    campaigns.end(campaign, trial, TrialState.CRASHED, **sampled)
    page = visit(f"{service.url}/campaigns/{campaign.id}#trials")
    page.get_by_role("button", name="Details of trial 1").click()
    detail = page.locator("tr.detail")
    expect(detail).to_contain_text(f"0.0421 J/token ({note})")
    page.get_by_role("tab", name="Answer").click()
    expect(page.get_by_text("autotune doctor --profile frontier")).to_be_visible()
