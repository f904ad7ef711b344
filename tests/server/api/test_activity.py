from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import update

from autotune.schemas.choices import CampaignState
from evaluators.trial import TrialProgress
from server.auth.permissions import Caller
from server.store import Store
from server.store.activity import NOT_BEGUN, NOT_CLAIMED, activity
from server.store.campaigns import campaign_row, change_state
from server.store.leases import claim
from server.store.tables import CampaignRow
from server.store.trials import note_progress
from tests.server.asking import created, with_trials


def found(client: TestClient) -> Any:
    return client.get("/api/v1/activity").json()


def test_what_runs_is_told_before_what_waits_and_for_what(client: TestClient, store: Store) -> None:
    resting, asked = created(store, name="at rest"), created(store)
    with_trials(store, resting, 1)
    trials = with_trials(store, asked, 3)
    with store.transaction() as session:
        change_state(session, campaign_row(session, resting.id), CampaignState.CANCELLED)
        waits = TrialProgress(phase="waiting", reason="Resources: nodes are busy", job_id="17")
        note_progress(session, trials[0], waits)
        silent = "Slurm does not answer since 14:02 (connect failure)"
        runs = TrialProgress(phase="running", reason=silent, job_id="18", host="n[1-2]")
        note_progress(session, trials[2], runs)
    told = found(client)
    assert [(each["number"], each["phase"], each["job_id"]) for each in told["trials"]] == [
        (3, "running", "18"),
        (1, "waiting", "17"),
        (2, "created", None),
    ]
    assert [each["reason"] for each in told["trials"][:2]] == [silent, waits.reason]
    assert told["trials"][0]["strategy"]["tensor_parallel"] == 2
    (campaign,) = told["campaigns"]
    assert (campaign["id"], campaign["running"], campaign["waiting"]) == (asked.id, 1, 2)
    assert campaign["waits_for"] == ""
    with store.transaction() as session:
        note_progress(session, trials[2], None)
    assert found(client)["campaigns"][0]["waits_for"] == "Resources: nodes are busy"


def test_a_campaign_says_why_nothing_of_it_runs(client: TestClient, store: Store) -> None:
    first, second = created(store), created(store)
    waits = [each["waits_for"] for each in found(client)["campaigns"]]
    assert waits == [NOT_CLAIMED, NOT_CLAIMED]
    client.post(f"/api/v1/campaigns/{second.id}/pause")
    with store.transaction() as session:
        claim(session, "elsewhere/1/2/3.00", seconds=60, limit=1)
    held = found(client)
    assert held["runners"] == [{"host": "elsewhere", "pid": 2, "campaigns": [first.id]}]
    assert [(each["runner"], each["waits_for"]) for each in held["campaigns"]] == [
        ("elsewhere:2", NOT_BEGUN),
        (None, "paused by the user"),
    ]
    with store.transaction() as session:
        session.execute(update(CampaignRow).values(lease_until=0.0))
    expired = found(client)
    assert expired["runners"] == []
    assert expired["campaigns"][0]["waits_for"] == NOT_CLAIMED


def test_a_private_campaign_is_not_told_of_to_others(store: Store) -> None:
    hidden, shared = created(store, private=True), created(store)
    for campaign in (hidden, shared):
        with_trials(store, campaign, 1)
    other = Caller(name="eve", scope="submit")
    with store.session() as session:
        told = activity(session, other.sees)
    assert [each.id for each in told.campaigns] == [shared.id]
    assert [each.campaign_id for each in told.trials] == [shared.id]
