"""Users, their tokens, and whose trials tell them something."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from autotune.schemas.choices import TrialState
from autotune.schemas.users import UserCreate
from server.store import NotFound, Store
from server.store.campaigns import campaign_row
from server.store.errors import Conflict
from server.store.history import TrialStack, trials_of
from server.store.tables import CampaignRow
from server.store.trials import finish_trial
from server.store.users import (
    account_of,
    add_user,
    change_user,
    list_users,
    renew_user,
    revoke_user,
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
