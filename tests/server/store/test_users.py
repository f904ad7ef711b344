"""Users, their tokens, and whose trials tell them something."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import update
from sqlalchemy.exc import IntegrityError

from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.users import UserCreate
from evaluators.trial import TrialProgress
from server.store import Store
from server.store.campaigns import campaign_row
from server.store.history import TrialStack, trials_of
from server.store.tables import CampaignRow
from server.store.trials import finish_trial, note_progress
from server.store.users import (
    account_of,
    add_proxy_user,
    add_user,
    list_users,
    revoke_user,
    token_hash,
    usage_by_user,
)
from tests.server.asking import created, ended, moved, read, with_trials, write


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
    renewed = add(store)
    account = read(store, account_of, "alice")
    assert account is not None
    assert account.token_hash == token_hash(renewed) != token_hash(token)


def test_an_added_user_who_exists_gets_a_token_and_a_scope(store: Store) -> None:
    add(store, scope="read")
    write(store, revoke_user, "alice")
    for fields, scope in (({}, "read"), ({"scope": "admin"}, "admin")):
        add(store, **fields)
        [user] = read(store, list_users)
        assert (user.scope, user.revoked_at) == (scope, None)
    with store.transaction() as session, pytest.raises(IntegrityError):
        add_proxy_user(session, "alice", "submit")


def test_nothing_private_tells_a_campaign_that_others_see(store: Store) -> None:
    campaign = created(store)
    [trial] = with_trials(store, campaign, 1)
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))
        session.execute(update(CampaignRow).values(owner="alice", private=True))
        row = campaign_row(session, campaign.id)
        digest, program = row.machine_digest, row.program

    def trials_seen(*private_of: str) -> int:
        stack = TrialStack(
            machine_digest=digest, program=program, simulated=True, private_of=private_of
        )
        return len(read(store, trials_of, stack))

    assert (trials_seen(), trials_seen("bob"), trials_seen("alice")) == (0, 0, 1)


@pytest.mark.each_database
def test_usage_counts_the_nodes_of_real_trials(store: Store) -> None:
    """Of trials on two nodes, which ran for a minute."""
    add(store)
    now = datetime.now(UTC)
    real, simulated = (created(store, owner="alice", evaluator=e) for e in ("local", "simulated"))
    for campaign in (real, simulated):
        old, new, runs, waits = with_trials(store, campaign, 4)
        month_ago = now - timedelta(days=31)
        write(store, finish_trial, old, ended(TrialState.OOM, finished_at=month_ago))
        write(store, finish_trial, new, ended(TrialState.OOM))
        write(store, note_progress, runs, TrialProgress(phase="running"))
        write(store, note_progress, waits, TrialProgress(phase="waiting"))
    moved(store, simulated.id, CampaignState.DONE)
    own = created(store, evaluator="local")
    [alice, service] = read(store, usage_by_user, since=now - timedelta(days=30))
    assert tuple(alice) == ("alice", 1, 1, pytest.approx(2 / 60), pytest.approx(4 / 60), 2)
    assert tuple(service) == ("", 1, 0, 0, 0, 0), own
