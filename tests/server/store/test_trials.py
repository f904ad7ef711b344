from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import ChosenBy, TrialState
from autotune.schemas.trials import Trial, TrialMetrics
from evaluators.trial import TrialProgress
from search_spaces.errors import InvalidInput
from server.campaign.results import FinishedTrial, UnrunTrial
from server.store import NotFound, Store
from server.store.campaigns import get_campaign
from server.store.tables import CampaignRow, TrialRow
from server.store.trials import (
    SORTS,
    all_trials,
    finish_all,
    finish_trial,
    get_trial,
    insert_trials,
    is_noted,
    list_trials,
    note_progress,
    pending_trials,
)
from tests.server.asking import (
    EXPECTED,
    STRATEGY,
    created,
    ended,
    new_trial,
    read,
    with_trials,
    write,
)

METRICS = {
    "gradient_accumulation_steps": 8,
    "global_batch_size": 16,
    "iteration_time_spread_s": 0.1,
    "measured": True,
    "tokens_per_s_per_gpu": 1.0,
    "tokens_per_node_hour": 1800.0,
    "model_tflops_per_gpu": 1.0,
    "hardware_tflops_per_gpu": 1.0,
    "mfu": None,
    "hfu": None,
    "peak_memory_gib": None,
    "loss": None,
}


def measured(seconds: float) -> FinishedTrial:
    rate = 1 / seconds
    return ended(
        TrialState.OK,
        node_hours=0.5,
        metrics=TrialMetrics.model_validate(
            METRICS | {"iteration_time_s": seconds, "tokens_per_s": rate}
        ),
        peak_memory_gib_by_rank=[1.5, 2.5],
        versions={"torch": "2.13.0"},
    )


def finish(store: Store, trial: Trial, result: FinishedTrial) -> bool:
    return write(store, finish_trial, trial, result)


@pytest.fixture
def campaign(store: Store) -> Campaign:
    """Nine trials: 1 to 5 ok, 6 and 7 out of memory, 8 and 9 pending."""
    campaign = created(store)
    trials = with_trials(store, campaign, 9)
    for trial, seconds in zip(trials, [3.0, 1 / 3, 2.0, 1 / 3, 0.1], strict=False):
        finish(store, trial, measured(seconds))
    for trial in trials[5:7]:
        finish(store, trial, ended(TrialState.OOM, node_hours=0.25, error="no memory"))
    return campaign


def test_trials_are_numbered_from_one_and_have_their_own_tokens(store: Store) -> None:
    campaign, other = created(store), created(store)
    first = with_trials(store, campaign, 2)
    elsewhere = with_trials(store, other, 1)
    more = with_trials(store, campaign, 1)
    assert [trial.number for trial in (*first, *more, *elsewhere)] == [1, 2, 3, 1]
    assert len({trial.token for trial in (*first, *more, *elsewhere)}) == 4
    assert first[0].state is TrialState.PENDING
    assert first[0].strategy == STRATEGY


@pytest.mark.each_database
def test_a_number_is_given_once_within_a_campaign(store: Store) -> None:
    trial = with_trials(store, created(store), 1)[0]
    with store.session() as session:
        row = session.get_one(TrialRow, trial.id)
        values = {c.name: getattr(row, c.name) for c in TrialRow.__table__.columns}
    with pytest.raises(IntegrityError), store.transaction() as session:
        session.add(TrialRow(**values | {"id": None, "token": "another"}))


@pytest.mark.each_database
def test_a_trial_is_read_as_it_was_written(store: Store, campaign: Campaign) -> None:
    trial = read(store, get_trial, campaign.id, 1)
    assert trial.metrics is not None
    assert trial.metrics.iteration_time_s == 3.0
    assert trial.peak_memory_gib_by_rank == [1.5, 2.5]
    assert trial.versions == {"torch": "2.13.0"}
    assert trial.started_at is not None
    assert trial.started_at.tzinfo is not None


@pytest.mark.each_database
def test_a_final_state_is_written_once(store: Store, campaign: Campaign) -> None:
    before = read(store, get_trial, campaign.id, 1)
    assert not finish(store, before, ended(TrialState.CRASHED, error="late"))
    assert read(store, get_trial, campaign.id, 1) == before


def test_how_a_trial_stands_is_noted_only_where_it_is_new(store: Store) -> None:
    (trial,) = with_trials(store, created(store), 1)
    assert is_noted(trial, None)
    waiting = TrialProgress(phase="waiting", reason="Prio\0rity", job_id="7", host="n" * 300)
    assert not is_noted(trial, waiting)
    assert write(store, note_progress, trial, waiting)
    noted = read(store, get_trial, trial.campaign_id, trial.number)
    assert noted.phase_reason == "Priority"
    assert is_noted(noted, waiting)
    assert not is_noted(noted, TrialProgress(phase="running"))
    assert not is_noted(noted, None)


@pytest.mark.each_database
def test_texts_are_stored_without_what_no_database_holds(store: Store) -> None:
    (trial,) = with_trials(store, created(store), 1)
    texts = {"error": "a\0b\ud800c", "host": "n\0" * 300, "energy_note": "\0"}
    finish(store, trial, ended(TrialState.CRASHED, job_id="47\x0011", **texts))
    stored = read(store, get_trial, trial.campaign_id, trial.number)
    assert (stored.error, stored.host, stored.energy_note) == ("ab?c", "n" * 255, "")
    assert stored.job_id == "4711"


def test_a_trial_that_never_ran_keeps_its_job_and_costs_nothing(store: Store) -> None:
    (trial,) = with_trials(store, created(store), 1)
    now = datetime.now(UTC)
    lost = UnrunTrial(state=TrialState.LOST, finished_at=now, error="no trace")
    with store.transaction() as session:
        note_progress(session, trial, TrialProgress(phase="waiting", reason="x", job_id="7"))
        finish_all(session, trial.campaign_id, lost)
    stored = read(store, get_trial, trial.campaign_id, trial.number)
    assert (stored.state, stored.error, stored.node_hours) == (TrialState.LOST, "no trace", 0.0)
    assert (stored.job_id, stored.phase, stored.phase_reason) == ("7", None, "")
    assert stored.finished_at == now


@pytest.mark.each_database
def test_since_when_the_surrogate_has_chosen(store: Store) -> None:
    campaign, other = created(store, search="deephyper"), created(store)
    by: tuple[ChosenBy | None, ...] = (None, "random", "surrogate", "random", "surrogate")
    expected = [EXPECTED.model_copy(update={"chosen_by": each}) for each in by]
    with store.transaction() as session:
        row = session.get_one(CampaignRow, campaign.id)
        insert_trials(session, row, [new_trial(expected=each) for each in expected])
    with_trials(store, other, 2)
    assert read(store, get_campaign, campaign.id).surrogate_from == 3
    assert read(store, get_campaign, other.id).surrogate_from is None


def test_what_a_campaign_adds_up_to(store: Store, campaign: Campaign) -> None:
    found = read(store, get_campaign, campaign.id)
    assert (found.trials, found.pending, found.failures, found.confirmations) == (9, 2, 2, 0)
    assert found.node_hours == pytest.approx(3.0)
    assert (found.fastest_trial, found.best_trial) == (5, 1), "all are of one strategy"
    assert found.fastest_objective == pytest.approx(10.0)
    assert found.best_objective == pytest.approx(3.0), "the median"


def test_pending_trials_are_those_without_a_final_state(store: Store, campaign: Campaign) -> None:
    assert [t.number for t in read(store, pending_trials, campaign.id)] == [8, 9]
    assert [t.number for t in read(store, all_trials, campaign.id)] == list(range(1, 10))


def numbers(store: Store, campaign: Campaign, *, limit: int, **options: Any) -> list[int]:
    """Of all pages, one after the other."""
    found: list[int] = []
    cursor = None
    while True:
        page = read(store, list_trials, campaign.id, cursor=cursor, limit=limit, **options)
        found += [trial.number for trial in page.items]
        cursor = page.next
        if cursor is None:
            return found


ORDERS = [
    ("number", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("-number", [9, 8, 7, 6, 5, 4, 3, 2, 1]),
    ("iteration_time_s", [5, 2, 4, 3, 1, 6, 7, 8, 9]),
    ("-iteration_time_s", [1, 3, 2, 4, 5, 6, 7, 8, 9]),
    ("-tokens_per_s", [5, 2, 4, 3, 1, 6, 7, 8, 9]),
    ("mfu", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("tensor_parallel", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
    ("duration_s", [1, 2, 3, 4, 5, 6, 7, 8, 9]),
]


def test_pages_give_each_trial_once_in_order(store: Store, campaign: Campaign) -> None:
    for sort, expected in ORDERS:
        for limit in (1, 2, 3, 100):
            assert numbers(store, campaign, sort=sort, limit=limit) == expected, sort
    for sort in SORTS:
        assert sorted(numbers(store, campaign, sort=f"-{sort}", limit=2)) == list(range(1, 10))


def test_trials_are_filtered_by_state_and_purpose(store: Store, campaign: Campaign) -> None:
    assert numbers(store, campaign, state=TrialState.OOM, limit=1) == [6, 7]
    assert numbers(store, campaign, state=TrialState.PENDING, sort="-number", limit=1) == [9, 8]
    assert numbers(store, campaign, purpose="confirmation", limit=5) == []


def test_a_misspelt_sort_is_refused_with_the_nearest(store: Store, campaign: Campaign) -> None:
    with (
        store.session() as session,
        pytest.raises(InvalidInput, match="iteration_time_s") as caught,
    ):
        list_trials(session, campaign.id, sort="-iteration_time")
    assert caught.value.value == "-iteration_time"


def test_trials_of_an_unknown_campaign_are_not_found(store: Store, campaign: Campaign) -> None:
    with store.session() as session:
        with pytest.raises(NotFound, match="no campaign 99"):
            list_trials(session, 99)
        with pytest.raises(NotFound, match="no campaign 99"):
            get_trial(session, 99, 1)
        with pytest.raises(NotFound, match="no trial 99"):
            get_trial(session, campaign.id, 99)


NOW = datetime(2026, 5, 1, tzinfo=UTC)


def unrun(state: TrialState, *, minutes: int = 0) -> UnrunTrial:
    return UnrunTrial(state=state, finished_at=NOW + timedelta(minutes=minutes), error="lost")


def test_an_ended_trial_is_read_from_its_row_once(store: Store) -> None:
    campaign = created(store)
    trials = with_trials(store, campaign, 3)
    with store.transaction() as session:
        for trial in trials[:2]:
            assert finish_trial(session, trial, unrun(TrialState.LOST))
    first = read(store, all_trials, campaign.id)
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
        assert finish_trial(session, trial, unrun(TrialState.LOST))
        lost = all_trials(session, campaign.id)
        assert lost[0].state is TrialState.LOST
    assert read(store, all_trials, campaign.id, known=lost)[0].state is TrialState.PENDING
    assert write(store, finish_trial, trial, unrun(TrialState.REFUSED, minutes=1))
    assert read(store, all_trials, campaign.id, known=lost)[0].state is TrialState.REFUSED


def test_trials_hold_the_names_of_their_fields_together(store: Store) -> None:
    campaign = created(store)
    with_trials(store, campaign, 2)
    first, second = read(store, all_trials, campaign.id)
    assert first.model_fields_set is second.model_fields_set
    names = set(first.model_fields_set)
    first.model_copy(update={"no_field": 1})
    assert second.model_fields_set == names
