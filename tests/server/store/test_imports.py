"""Imports in the store: earlier trials of their machine and trainer for later campaigns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from autotune.schemas.imports import ImportedRun
from autotune.schemas.resolution import machine_of
from search_spaces.catalog import load_model
from server.campaign.start import space_of_campaign
from server.store import Store
from server.store.campaigns import (
    IdempotencyKey,
    campaign_row,
    create_campaign,
    delete_campaign,
    get_campaign,
)
from server.store.history import keep_start, past_trials, starting_observations
from server.store.imports import import_runs
from tests.server.asking import STRATEGY, campaign_request, read, write

ENDED = datetime(2026, 5, 1, 12, tzinfo=UTC)
LOCAL = {"evaluator": "local", "machine": "frontier", "adapter": "megatron-deepspeed"}
PROFILE = {"name": "local", "adapter": {"name": "megatron-deepspeed", "command": ["train"]}}
ABOUT: dict[str, Any] = {
    "model": load_model("gpt-22b"),
    "machine": machine_of("frontier"),
    "profile": PROFILE,
    "owner": None,
}
RUNS = [
    ImportedRun(strategy=STRATEGY, iteration_time_s=20.0, source="a.log", finished_at=ENDED),
    ImportedRun(strategy=STRATEGY, state="oom", source="t.csv, row 2", finished_at=ENDED),
]


def stored(store: Store, *, key: str = "k", **changes: Any) -> int:
    once = IdempotencyKey(key=key, digest=key)
    with store.transaction() as session:
        request = campaign_request(**LOCAL | changes)
        return import_runs(session, request, RUNS, idempotency=once, **ABOUT).id


def later(store: Store, **changes: Any) -> int:
    """A campaign of another model on the same machine with the same trainer."""
    request = campaign_request(**LOCAL | changes)
    about = ABOUT | {"model": load_model("gpt-1.4b")}
    return write(store, create_campaign, request, simulated=False, **about).id


@pytest.mark.each_database
def test_a_campaign_starts_from_them_until_deleted(store: Store) -> None:
    number = stored(store, name="before")
    own = later(store)
    with store.session() as session:
        found = past_trials(session, campaign_row(session, own))
    assert [(trial.campaign_id, trial.model.name) for trial in found] == [(number, "gpt-22b")] * 2
    assert {trial.finished_at for trial in found} == {ENDED}
    with store.transaction() as session:
        row = campaign_row(session, own)
        space = space_of_campaign(
            campaign_request(**LOCAL), load_model("gpt-1.4b"), ABOUT["machine"], profile=None
        )
        now = ENDED + timedelta(days=10)
        shown = starting_observations(session, own, space, now=now)
        keep_start(session, row, shown)
    assert {each.age_days for each in shown} == {10.0}
    assert {(each.fitted, each.iteration_time_s) for each in shown} == {(True, 20.0), (False, None)}
    oom = next(each for each in shown if not each.fitted)
    assert oom.strategy == STRATEGY, "at its own accumulation, not at that of a trial"
    [start] = read(store, get_campaign, own).started_from or []
    assert (start.campaign_id, start.name, start.trials) == (number, "before", 2)
    assert len(write(store, delete_campaign, number)) == 2
    with store.session() as session:
        assert past_trials(session, campaign_row(session, own)) == []


def test_the_same_runs_are_stored_once(store: Store) -> None:
    first = stored(store)
    assert stored(store) == first
    assert stored(store, key="other") != first
    write(store, delete_campaign, first)
    assert stored(store) not in {first, None}


def test_private_ones_serve_no_public_campaign(store: Store) -> None:
    stored(store, private=True)
    public, private = later(store), later(store, private=True)
    with store.session() as session:
        assert past_trials(session, campaign_row(session, public)) == []
        assert len(past_trials(session, campaign_row(session, private))) == 2
