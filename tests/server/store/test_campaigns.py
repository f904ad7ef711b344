from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.requests import Budget, BudgetExtension
from evaluators.trial import TrialProgress
from search_spaces.errors import InvalidInput, InvalidInputs
from server.store import Conflict, NotFound, Store
from server.store.campaigns import (
    IdempotencyKey,
    campaign_row,
    cancel_campaign,
    create_campaign,
    delete_campaign,
    extend_campaign,
    find_replay,
    get_campaign,
    pause_campaign,
    resume_campaign,
)
from server.store.tables import CampaignRow
from server.store.trials import note_progress
from tests.server.asking import campaign_request, created, moved, read, with_trials, write

Command = Callable[[Session, int], Campaign]


@pytest.mark.each_database
def test_a_campaign_is_read_as_it_was_created(store: Store) -> None:
    before = datetime.now(UTC)
    campaign = created(store)
    found = read(store, get_campaign, campaign.id)
    assert found == campaign
    assert found.created_at.utcoffset() == timedelta(0)
    assert before <= found.created_at <= datetime.now(UTC)
    assert campaign.state is CampaignState.QUEUED
    assert campaign.request == campaign_request()
    assert campaign.model.num_layers == 48
    assert campaign.machine.name == "frontier"
    assert created(store, name="").name == "gpt-22b on frontier"


def test_a_campaign_says_what_most_of_its_trials_wait_for(store: Store) -> None:
    campaign = created(store)
    trials = with_trials(store, campaign, 5)
    now = [
        TrialProgress(phase="waiting", reason=reason) for reason in ("Licenses", *["Priority"] * 2)
    ]
    for trial, progress in zip(trials, now, strict=False):
        assert write(store, note_progress, trial, progress)
    assert read(store, get_campaign, campaign.id).waits_for == "Priority"
    write(store, note_progress, trials[3], TrialProgress(phase="running"))
    assert read(store, get_campaign, campaign.id).waits_for == "", "one runs"
    write(store, pause_campaign, campaign.id)
    assert read(store, get_campaign, campaign.id).waits_for == "paused by the user"
    write(store, cancel_campaign, campaign.id)
    assert read(store, get_campaign, campaign.id).waits_for == "", "it has ended"


@pytest.mark.each_database
def test_a_time_without_a_zone_is_not_stored(store: Store) -> None:
    campaign = created(store)
    with pytest.raises(StatementError, match="time zone"), store.transaction() as session:
        campaign_row(session, campaign.id).started_at = datetime(2030, 1, 1)


def test_an_unknown_campaign_is_not_found(store: Store) -> None:
    with store.session() as session, pytest.raises(NotFound, match="there is no campaign 7"):
        get_campaign(session, 7)


ALLOWED: dict[Command, dict[CampaignState, CampaignState]] = {
    pause_campaign: {
        CampaignState.QUEUED: CampaignState.PAUSED,
        CampaignState.RUNNING: CampaignState.PAUSED,
        CampaignState.CONFIRMING: CampaignState.PAUSED,
        CampaignState.PAUSED: CampaignState.PAUSED,
    },
    resume_campaign: {
        CampaignState.PAUSED: CampaignState.QUEUED,
        CampaignState.FAILED: CampaignState.QUEUED,
        CampaignState.QUEUED: CampaignState.QUEUED,
        CampaignState.RUNNING: CampaignState.RUNNING,
        CampaignState.CONFIRMING: CampaignState.CONFIRMING,
    },
    cancel_campaign: {
        CampaignState.QUEUED: CampaignState.CANCELLED,
        CampaignState.RUNNING: CampaignState.CANCELLED,
        CampaignState.CONFIRMING: CampaignState.CANCELLED,
        CampaignState.PAUSED: CampaignState.CANCELLED,
        CampaignState.FAILED: CampaignState.CANCELLED,
        CampaignState.CANCELLED: CampaignState.CANCELLED,
    },
}


@pytest.mark.parametrize("command", list(ALLOWED), ids=lambda command: command.__name__)
def test_each_state_allows_what_it_should(store: Store, command: Command) -> None:
    for state in CampaignState:
        campaign = created(store)
        with store.transaction() as session:
            campaign_row(session, campaign.id).state = state
        expected = ALLOWED[command].get(state)
        if expected is None:
            with pytest.raises(Conflict, match=f"is {state}"), store.transaction() as session:
                command(session, campaign.id)
        else:
            assert write(store, command, campaign.id).state is expected


def test_a_campaign_that_had_started_goes_on_running(store: Store) -> None:
    campaign = created(store, budget={"max_trials": 6, "max_node_hours": 5.0})
    moved(store, campaign.id, CampaignState.RUNNING)
    moved(store, campaign.id, CampaignState.PAUSED)
    assert write(store, resume_campaign, campaign.id).state is CampaignState.RUNNING
    moved(store, campaign.id, CampaignState.DONE)
    extended = write(store, extend_campaign, campaign.id, BudgetExtension(max_trials=10))
    assert extended.state is CampaignState.RUNNING
    assert extended.finished_at is None
    new = Budget(max_trials=10, max_node_hours=5.0, stop_early=False)
    assert extended.request.budget == new


def test_knobs_are_tried_on_a_finished_campaign(store: Store) -> None:
    campaign = created(store, evaluator="local", machine="local", model="tiny")
    moved(store, campaign.id, CampaignState.DONE, reason="Budget spent: 1 trial.")
    extended = write(store, extend_campaign, campaign.id, BudgetExtension(knobs=["overlap"]))
    assert (extended.state, extended.reason) == (CampaignState.CONFIRMING, "Budget spent: 1 trial.")
    assert extended.request.knobs == ["overlap"]
    more = write(store, extend_campaign, campaign.id, BudgetExtension(knobs=["reduce_bucket"]))
    assert more.request.knobs == ["overlap", "reduce_bucket"]
    budget = BudgetExtension(knobs="all", max_node_hours=9.0)
    assert write(store, extend_campaign, campaign.id, budget).state is CampaignState.QUEUED
    with pytest.raises(InvalidInput, match="this knob"), store.transaction() as session:
        extend_campaign(session, campaign.id, BudgetExtension(knobs=["overlp"]))


def test_an_extension_has_to_extend(store: Store) -> None:
    campaign = created(store, budget={"max_trials": 6})
    for extension in (
        BudgetExtension(max_trials=6),
        BudgetExtension(deadline=datetime(2020, 1, 1, tzinfo=UTC)),
        BudgetExtension(deadline=datetime(2020, 1, 1)),
    ):
        with pytest.raises(InvalidInputs), store.transaction() as session:
            extend_campaign(session, campaign.id, extension)
    with pytest.raises(InvalidInput, match="nothing"), store.transaction() as session:
        extend_campaign(session, campaign.id, BudgetExtension())
    moved(store, campaign.id, CampaignState.CANCELLED)
    with pytest.raises(Conflict), store.transaction() as session:
        extend_campaign(session, campaign.id, BudgetExtension(max_trials=99))


def test_deleting_removes_trials_and_events_and_returns_tokens(store: Store) -> None:
    campaign, other = created(store), created(store)
    trials = with_trials(store, campaign, 2)
    with_trials(store, other, 1)
    moved(store, campaign.id, CampaignState.RUNNING)
    with pytest.raises(Conflict, match="is running"), store.transaction() as session:
        delete_campaign(session, campaign.id)
    moved(store, campaign.id, CampaignState.CANCELLED)
    with pytest.raises(Conflict, match="running trials"), store.transaction() as session:
        delete_campaign(session, campaign.id)
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trials SET state = 'ok'")
    tokens = write(store, delete_campaign, campaign.id)
    assert tokens == [trial.token for trial in trials]
    with store.engine.connect() as connection:
        for table, left in {"campaigns": 1, "trials": 1, "events": 2}.items():
            count = connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar()
            assert count == left, table
    last = created(store)
    moved(store, last.id, CampaignState.DONE)
    write(store, delete_campaign, last.id)
    assert created(store).id > last.id, "ids are not given again"


@pytest.mark.each_database
def test_one_key_creates_one_campaign(store: Store) -> None:
    key = IdempotencyKey(key="k", digest="d" * 64)
    template = created(store)

    def create() -> Campaign:
        return write(
            store,
            create_campaign,
            template.request,
            model=template.model,
            machine=template.machine,
            simulated=True,
            idempotency=key,
        )

    first = create()
    with pytest.raises(IntegrityError):
        create()
    with store.session() as session:
        replayed = find_replay(session, key)
        assert replayed is not None
        assert replayed.id == first.id
        assert find_replay(session, IdempotencyKey(key="other", digest="d" * 64)) is None
        with pytest.raises(Conflict, match="another body"):
            find_replay(session, IdempotencyKey(key="k", digest="e" * 64))


@pytest.mark.each_database
def test_a_failed_transaction_leaves_nothing(store: Store) -> None:
    campaign = created(store)

    def fail_half_way() -> None:
        with store.transaction() as session:
            campaign_row(session, campaign.id).name = "half"
            session.flush()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    with store.session() as session:
        row = session.get_one(CampaignRow, campaign.id)
        assert row.name == campaign.name
