from __future__ import annotations

import threading

import pytest

from autotune.schemas.choices import TrialState
from evaluators.trial import TrialProgress
from server.store import Store
from server.store.campaigns import cancel_campaign, delete_campaign, pause_campaign
from server.store.events import events_since, last_event_id, newest_events
from server.store.trials import finish_trial, note_progress
from tests.server.asking import created, ended, read, with_trials, write

WRITERS, CHANGES = 6, 12


def test_each_change_is_announced_with_what_it_changed(store: Store) -> None:
    campaign = created(store)
    trial = with_trials(store, campaign, 1)[0]
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))
        pause_campaign(session, campaign.id)
    events = read(store, events_since, 0)
    assert read(store, last_event_id) == events[-1].id
    assert [event.kind for event in events] == ["campaign", "trial", "trial", "campaign"]
    assert [event.id for event in events] == sorted({event.id for event in events})
    assert events[2].trial is not None
    assert events[2].trial.state is TrialState.OOM
    assert events[2].campaign is None
    assert events[3].campaign is not None
    assert events[3].campaign.state == "paused"


def test_events_of_one_campaign_after_a_given_one(store: Store) -> None:
    campaign, other = created(store), created(store)
    with_trials(store, campaign, 3)
    with_trials(store, other, 1)
    with store.session() as session:
        mine = events_since(session, 0, campaign.id)
        assert {event.campaign_id for event in mine} == {campaign.id}
        assert len(mine) == 4
        assert events_since(session, mine[1].id, campaign.id) == mine[2:]
        assert events_since(session, 0, campaign.id, limit=2) == mine[:2]


def test_each_campaigns_newest_event_grows_with_every_change(store: Store) -> None:
    campaign, other, deleted = created(store), created(store), created(store)
    trial = with_trials(store, campaign, 1)[0]
    write(store, cancel_campaign, deleted.id)
    write(store, delete_campaign, deleted.id)
    ids = [campaign.id, other.id, deleted.id]
    before = read(store, newest_events, ids)
    assert read(store, newest_events, []) == {}
    assert set(before) == {campaign.id, other.id}
    assert write(store, note_progress, trial, TrialProgress(phase="waiting"))
    after = read(store, newest_events, ids)
    assert after[campaign.id] == read(store, last_event_id)
    assert after[campaign.id] > before[campaign.id]
    assert after[other.id] == before[other.id]


def test_how_a_trial_stands_is_not_written_once_it_has_ended(store: Store) -> None:
    trial = with_trials(store, created(store), 1)[0]
    with store.transaction() as session:
        finish_trial(session, trial, ended(TrialState.OOM))
        before = last_event_id(session)
        assert not note_progress(session, trial, TrialProgress(phase="running"))
        assert last_event_id(session) == before


def test_nothing_is_announced_when_nothing_is_stored(store: Store) -> None:
    campaign = created(store)
    before = read(store, last_event_id)
    try:
        with store.transaction() as session:
            pause_campaign(session, campaign.id)
            raise KeyError
    except KeyError:
        pass
    assert read(store, last_event_id) == before


@pytest.mark.each_database
def test_a_reader_that_resumes_at_the_last_id_misses_nothing(store: Store) -> None:
    """Ids are given before transactions commit: they must become visible in their order."""
    campaigns = [created(store) for _ in range(WRITERS)]
    trials = {campaign.id: with_trials(store, campaign, CHANGES) for campaign in campaigns}
    start = read(store, last_event_id)

    def end_all(campaign_id: int) -> None:
        for trial in trials[campaign_id]:
            write(store, finish_trial, trial, ended(TrialState.OOM))

    writers = [threading.Thread(target=end_all, args=(campaign.id,)) for campaign in campaigns]
    for writer in writers:
        writer.start()
    seen: list[int] = []
    after = start
    while True:
        finished = not any(writer.is_alive() for writer in writers)
        events = read(store, events_since, after, limit=7)
        seen += [event.id for event in events]
        after = seen[-1] if seen else start
        if finished and not events:
            break
    everything = read(store, events_since, start, limit=10_000)
    assert seen == [event.id for event in everything]
    assert len(seen) == WRITERS * CHANGES
