from __future__ import annotations

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from server.store import Store
from server.store.campaigns import campaign_row, change_state, get_campaign
from server.store.events import last_event_id
from server.store.leases import claim
from server.store.waiting import WaitingNotes, forget_waiting
from tests.server.asking import created, read

NO_RUNNER = "waits for a runner that takes simulated trials (autotune runner)"


def reason(store: Store, campaign: Campaign) -> str:
    return read(store, get_campaign, campaign.id).reason


def claimed(store: Store) -> None:
    with store.transaction() as session:
        [lease] = claim(session, "another-host/1/1/1.00", seconds=60.0, limit=1)
        forget_waiting(session, [lease.campaign_id])


def test_a_campaign_waits_for_a_runner_until_one_claims_it(store: Store) -> None:
    notes, campaign = WaitingNotes(store), created(store)
    notes.look()
    assert reason(store, campaign) == "", "a runner may be about to claim it"
    notes.look()
    assert reason(store, campaign) == NO_RUNNER
    event = read(store, last_event_id)
    notes.look()
    assert read(store, last_event_id) == event, "nothing changed"
    claimed(store)
    notes.look()
    assert reason(store, campaign) == ""


@pytest.mark.parametrize(("owner", "name"), [(None, "its owner"), ("ada", "ada")])
def test_a_campaign_may_wait_for_a_runner_of_its_owner(
    store: Store, owner: str | None, name: str
) -> None:
    notes, campaign = WaitingNotes(store), created(store, own_runner=True)
    with store.transaction() as session:
        campaign_row(session, campaign.id).owner = owner
    notes.look()
    notes.look()
    assert reason(store, campaign) == (
        f"waits for a runner of {name} that takes simulated trials (autotune runner --as-me)"
    )


def test_a_confirming_campaign_also_says_why_its_search_ended(store: Store) -> None:
    notes, campaign = WaitingNotes(store), created(store)
    ended = "Budget spent: 6 trials."
    with store.transaction() as session:
        row = campaign_row(session, campaign.id)
        change_state(session, row, CampaignState.CONFIRMING, reason=ended)
    notes.look()
    notes.look()
    assert reason(store, campaign) == f"{ended} It {NO_RUNNER}"
    claimed(store)
    assert reason(store, campaign) == ended
