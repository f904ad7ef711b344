from __future__ import annotations

from datetime import UTC, datetime

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from server.store import Store
from server.store.campaigns import campaign_row
from server.store.tables import TrialRow, UserRow
from server.store.trials import finish_trial
from server.store.users import OwnerRoom, room_of
from tests.server.asking import created, ended, with_trials


def of_user(store: Store, *campaigns: Campaign, **limits: float) -> None:
    with store.transaction() as session:
        session.add(UserRow(name="ada", scope="submit", created_at=datetime.now(UTC), **limits))
        for campaign in campaigns:
            campaign_row(session, campaign.id).owner = "ada"


def room(store: Store, *, simulated: bool = False) -> OwnerRoom:
    with store.transaction() as session:
        return room_of(session, "ada", simulated=simulated, locked=True)


def test_trials_at_once_are_those_of_all_campaigns(store: Store) -> None:
    one, other, somebody_elses = (created(store) for _ in range(3))
    assert room(store) == OwnerRoom(), "who is no user has no limits"
    of_user(store, one, other, most_trials=3)
    with_trials(store, somebody_elses, 5)
    with_trials(store, one, 2)
    assert room(store) == OwnerRoom(trials=1)
    with_trials(store, other, 1)
    assert room(store).trials == 0
    assert room(store).reason == "waits for another trial to end: ada may have 3 at once"


def test_a_month_that_is_used_up_holds_real_trials_until_the_next(store: Store) -> None:
    campaign = created(store)
    of_user(store, campaign, node_hours_a_month=1.0)
    [trial] = with_trials(store, campaign, 1)
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.CRASHED, node_hours=1.5))
        session.get_one(TrialRow, 1).simulated = False
    assert room(store).trials == 0
    assert room(store).reason == (
        "waits for the next month: ada may take 1 node-hours in one, and has taken 1.5 in this"
    )
    assert room(store, simulated=True) == OwnerRoom()
    with store.transaction() as session:
        session.get_one(TrialRow, 1).finished_at = datetime(2020, 1, 31, tzinfo=UTC)
    assert room(store) == OwnerRoom()
