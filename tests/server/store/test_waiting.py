from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from server.store import Store
from server.store.campaigns import campaign_row, change_state, get_campaign
from server.store.events import last_event_id
from server.store.leases import claim
from server.store.runners import (
    RunnerOffer,
    forget_runner,
    forget_waiting,
    note_runner,
    note_waiting,
)
from tests.server.asking import created

ELSEWHERE = "another-host/1/1/1.00"


def reason(store: Store, campaign: Campaign) -> str:
    note_waiting(store, silent_s=30.0)
    with store.session() as session:
        return get_campaign(session, campaign.id).reason


def working(store: Store, *evaluators: str, user: str | None = None, full: bool = False) -> None:
    with store.transaction() as session:
        forget_runner(session, ELSEWHERE)
        note_runner(
            session,
            ELSEWHERE,
            version="1",
            started_at=datetime.now(UTC),
            offer=RunnerOffer(evaluators=evaluators, user=user),
            full=full,
            figures=[],
        )


def test_a_campaign_says_why_it_waits_until_a_runner_has_it(store: Store) -> None:
    campaign = created(store)
    assert reason(store, campaign) == "waits for a runner, and none runs (autotune runner)"
    working(store, "slurm", "ray")
    assert "takes simulated trials, and none that runs does" in reason(store, campaign)
    working(store, "simulated", full=True)
    assert "waits for room: the runner that takes it works on as many" in reason(store, campaign)
    with store.session() as session:
        told = last_event_id(session)
    assert reason(store, campaign)
    with store.session() as session:
        assert last_event_id(session) == told, "what has not changed is not told again"
    with store.transaction() as session:
        [lease] = claim(session, ELSEWHERE, seconds=60.0, limit=1)
        forget_waiting(session, [lease.campaign_id])
    assert reason(store, campaign) == ""


@pytest.mark.parametrize("user", [None, "ada"])
def test_who_asks_for_an_own_runner_waits_for_it(store: Store, user: str | None) -> None:
    campaign = created(store, own_runner=True)
    working(store, "simulated", user=user)
    assert "autotune runner --as-me" in reason(store, campaign)


def test_a_runner_that_has_fallen_silent_does_not_run(store: Store) -> None:
    campaign = created(store)
    working(store, "simulated")
    assert reason(store, campaign) == ""
    note_waiting(store, silent_s=-1.0)
    with store.session() as session:
        assert "none runs" in get_campaign(session, campaign.id).reason


def test_one_that_confirms_says_besides_why_its_search_ended(store: Store) -> None:
    campaign = created(store)
    ended = "The budget of 6 trials is spent."
    with store.transaction() as session:
        row = campaign_row(session, campaign.id)
        change_state(session, row, CampaignState.CONFIRMING, reason=ended)
    assert reason(store, campaign) == (
        f"{ended} It waits for a runner, and none runs (autotune runner)"
    )
    working(store, "slurm")
    assert reason(store, campaign).startswith(f"{ended} It waits for a runner that takes simulated")
    with store.transaction() as session:
        [lease] = claim(session, ELSEWHERE, seconds=60.0, limit=1)
        forget_waiting(session, [lease.campaign_id])
    assert reason(store, campaign) == ended
