"""Ended trials that are known are not read again, unless their end was rolled back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import event

from autotune.schemas.choices import TrialState
from server.campaign.results import UnrunTrial
from server.store import Store
from server.store.trials import all_trials, finish_trial
from tests.server.asking import created, with_trials

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def ended(state: TrialState, *, minutes: int = 0) -> UnrunTrial:
    return UnrunTrial(state=state, finished_at=NOW + timedelta(minutes=minutes), error="lost")


def test_an_ended_trial_is_read_from_its_row_once(store: Store) -> None:
    campaign = created(store)
    trials = with_trials(store, campaign, 3)
    with store.transaction() as session:
        for trial in trials[:2]:
            assert finish_trial(session, trial, ended(TrialState.LOST))
    with store.session() as session:
        first = all_trials(session, campaign.id)
    rows: list[str] = []

    def note(_conn: object, _cursor: object, statement: str, *_: object) -> None:
        if "measurements" in statement:
            rows.append(statement)

    with store.session() as session:
        event.listen(session.get_bind(), "before_cursor_execute", note)
        again = all_trials(session, campaign.id, known=first)
        event.remove(session.get_bind(), "before_cursor_execute", note)
    assert again == first
    assert [trial.number for trial in again] == [1, 2, 3]
    assert (again[0] is first[0], again[2] is first[2]) == (True, False)
    assert len(rows) == 1  # of the trial that runs


def test_an_end_that_was_rolled_back_is_none(store: Store) -> None:
    campaign = created(store)
    [trial] = with_trials(store, campaign, 1)
    with store.session() as session:  # which is never committed
        assert finish_trial(session, trial, ended(TrialState.LOST))
        lost = all_trials(session, campaign.id)
        assert lost[0].state is TrialState.LOST
    with store.session() as session:
        assert all_trials(session, campaign.id, known=lost)[0].state is TrialState.PENDING
    with store.transaction() as session:
        assert finish_trial(session, trial, ended(TrialState.REFUSED, minutes=1))
    with store.session() as session:
        assert all_trials(session, campaign.id, known=lost)[0].state is TrialState.REFUSED


def test_trials_hold_the_names_of_their_fields_together(store: Store) -> None:
    campaign = created(store)
    with_trials(store, campaign, 2)
    with store.session() as session:
        first, second = all_trials(session, campaign.id)
    assert first.model_fields_set is second.model_fields_set
    assert first.strategy.model_fields_set is second.strategy.model_fields_set
    names = set(first.strategy.model_fields_set)
    first.strategy.model_copy(update={"no_field": 1})
    assert second.strategy.model_fields_set == names
