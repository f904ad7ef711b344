"""Users, their limits, and what outlasts a campaign that is deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import update

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.users import UserCreate
from server.store import NotFound, Store
from server.store.audit import audit_page, note_change
from server.store.campaigns import campaign_row, change_state, delete_campaign
from server.store.errors import Conflict
from server.store.history import TrialStack, trials_of
from server.store.tables import CampaignRow, TrialRow, UserRow
from server.store.trials import finish_trial
from server.store.users import (
    OwnerRoom,
    account_of,
    add_user,
    change_user,
    demand_room,
    get_user,
    list_users,
    renew_user,
    revoke_user,
    room_of,
    token_hash,
)
from tests.server.asking import created, ended, read, with_trials, write


def add(store: Store, **fields: object) -> str:
    return write(store, add_user, UserCreate.model_validate({"name": "alice"} | fields))


def test_of_a_token_the_database_keeps_a_hash_alone(store: Store) -> None:
    token = add(store)
    with store.session() as session:
        account = account_of(session, "alice")
        assert account is not None
        assert account.token_hash == token_hash(token)
    with store.engine.connect() as connection:
        rows = connection.exec_driver_sql("SELECT * FROM users").all()
    assert token.partition(".")[2] not in repr(rows)
    renewed = write(store, renew_user, "alice")
    account = read(store, account_of, "alice")
    assert account is not None
    assert account.token_hash == token_hash(renewed) != token_hash(token)


def test_a_name_is_given_once(store: Store) -> None:
    add(store)
    write(store, revoke_user, "alice")
    with pytest.raises(Conflict, match="there is, or was, a user alice"):
        add(store)
    with store.transaction() as session, pytest.raises(NotFound):
        change_user(session, "bob", {"scope": "admin"})
    assert [(user.name, user.revoked_at is None) for user in read(store, list_users)] == [
        ("alice", False)
    ]


def test_limits_hold_for_what_counts(store: Store) -> None:
    add(store, most_campaigns=1, node_hours_a_month=1.0)
    campaign = created(store, evaluator="local")
    [trial] = with_trials(store, campaign, 1)
    with store.transaction() as session:
        session.execute(update(CampaignRow).values(owner="alice"))
        session.execute(update(TrialRow).values(simulated=False))
        demand_room(session, "alice", simulated=False, present=CampaignState.RUNNING)
        with pytest.raises(Conflict, match=r"1 campaigns at once .* and has 1"):
            demand_room(session, "alice", simulated=True)
        with pytest.raises(Conflict, match="1 campaigns at once"):
            demand_room(session, "alice", simulated=True, present=CampaignState.DONE)
        finish_trial(session, trial, ended(TrialState.OK, node_hours=1.5))
        change_state(session, campaign_row(session, campaign.id), CampaignState.DONE)
    with store.transaction() as session:
        demand_room(session, "alice", simulated=True)
        with pytest.raises(Conflict, match=r"1 node-hours in a calendar month, and has taken 1\.5"):
            demand_room(session, "alice", simulated=False)
        delete_campaign(session, campaign.id)
    with store.transaction() as session:
        assert get_user(session, "alice").node_hours_this_month == 1.5
        with pytest.raises(Conflict, match=r"taken 1\.5"):
            demand_room(session, "alice", simulated=False)
        change_user(session, "alice", {"node_hours_a_month": None})
        demand_room(session, "alice", simulated=False)


def test_nothing_private_tells_a_campaign_that_others_see(store: Store) -> None:
    campaign = created(store)
    [trial] = with_trials(store, campaign, 1)
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))
        session.execute(update(CampaignRow).values(owner="alice", private=True))
        row = campaign_row(session, campaign.id)
        digest, program = row.machine_digest, row.program

    def told(*private_of: str) -> int:
        stack = TrialStack(
            machine_digest=digest, program=program, simulated=True, private_of=private_of
        )
        return len(read(store, trials_of, stack))

    assert (told(), told("bob"), told("alice")) == (0, 0, 1)


def test_the_audit_is_read_by_user_campaign_and_time(store: Store) -> None:
    with store.transaction() as session:
        for user, campaign in (("alice", 1), ("bob", 2), ("bob", None)):
            note_change(
                session, user=user, address="::1", action="x", status=200, campaign_id=campaign
            )
    with store.session() as session:
        first = audit_page(session, limit=2)
        assert [entry.id for entry in first.items] == [3, 2]
        assert [e.id for e in audit_page(session, cursor=first.next).items] == [1]
        assert [e.id for e in audit_page(session, user="bob", campaign_id=2).items] == [2]
        assert audit_page(session, since=datetime.now(UTC)).items == []


def of_user(store: Store, *campaigns: Campaign, **limits: float) -> None:
    with store.transaction() as session:
        session.add(UserRow(name="ada", scope="submit", created_at=datetime.now(UTC), **limits))
        for campaign in campaigns:
            campaign_row(session, campaign.id).owner = "ada"


def room(store: Store, *, simulated: bool = False) -> OwnerRoom:
    return write(store, room_of, "ada", simulated=simulated, locked=True)


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
