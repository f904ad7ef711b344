from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select

from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign, StartedFrom, StartWorth
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.resolution import machine_of
from autotune.schemas.trials import TrialMetrics
from search_spaces.catalog import load_machine, load_model
from search_spaces.fields import as_table
from server.cache import Cache
from server.campaign.results import FinishedTrial
from server.store import Store
from server.store.campaign_list import CampaignList
from server.store.campaigns import (
    campaign_row,
    create_campaign,
    delete_campaign,
    get_campaign,
)
from server.store.history import (
    PastTrial,
    earlier_observations,
    keep_start,
    note_worth,
    past_trials,
    trials_by_id,
)
from server.store.tables import EarlierTrialsRow
from server.store.trials import all_trials, finish_trial, insert_trials
from tests.server.asking import (
    STRATEGY,
    campaign_request,
    created,
    ended,
    moved,
    new_trial,
    read,
    with_trials,
    write,
)
from tests.server.statements import statements_of
from tests.server.store.test_trials import METRICS

VERSIONS = {"torch": "2.5.1", "deepspeed": "0.15.4"}
OK = ended(TrialState.OK, versions=VERSIONS)
ADAPTER: dict[str, Any] = {
    "name": "local",
    "adapter": {"name": "a" * 50, "command": ["train"]},
}
OVERLAP = {"name": "overlap", "values": [True, False], "searched": False}
OVERLAPPING = ADAPTER | {"adapter": ADAPTER["adapter"] | {"dimensions": [OVERLAP]}}


def with_ends(store: Store, campaign: Campaign, *ends: FinishedTrial) -> list[int]:
    """Trials that ended so; their ids."""
    trials = with_trials(store, campaign, len(ends))
    with store.transaction() as session:
        for trial, end in zip(trials, ends, strict=True):
            assert finish_trial(session, trial, end)
    return [trial.id for trial in trials]


def past(store: Store, campaign: Campaign, **options: Any) -> list[PastTrial]:
    with store.session() as session:
        return past_trials(session, campaign_row(session, campaign.id), **options)


def test_past_trials_are_others_that_ended_ok_or_out_of_memory(
    store: Store,
) -> None:
    first, second = created(store), created(store, model="gpt-175b")
    ok, oom, *_ = with_ends(
        store, first, OK, *(ended(state) for state in TrialState if state not in {"ok", "pending"})
    )
    with_trials(store, first, 1)
    (other,) = with_ends(store, second, OK)
    own = created(store)
    with_ends(store, own, OK)
    found = past(store, own)
    assert [trial.id for trial in found] == [other, oom, ok]
    assert [trial.campaign_id for trial in found] == [second.id, first.id, first.id]
    assert [trial.model.name for trial in found] == ["gpt-175b", "gpt-22b", "gpt-22b"]
    assert {trial.strategy for trial in found} == {STRATEGY}
    assert all(trial.finished_at.utcoffset() is not None for trial in found)
    assert found[1].versions == VERSIONS, "one that failed could not tell; its campaign could"
    assert [trial.id for trial in past(store, own, most=2)] == [other, oom]


def test_a_past_trial_with_few_layers_is_one_of_a_smaller_model(store: Store) -> None:
    first, own = created(store), created(store)
    short = new_trial(stands_for_nodes=8, num_layers=12)
    rate = {"iteration_time_s": 1.0, "tokens_per_s": 1.0}
    metrics = TrialMetrics.model_validate(METRICS | rate)
    with store.transaction() as session:
        [trial] = insert_trials(session, campaign_row(session, first.id), [short])
        assert finish_trial(session, trial, replace(OK, metrics=metrics))
    [found] = past(store, own)
    assert (found.num_layers, found.model.num_layers) == (12, 48)
    [stored] = read(store, all_trials, first.id)
    assert read(store, get_campaign, first.id).best_trial is None, "its rates are of few layers"
    assert (stored.num_layers, stored.stands_for_nodes) == (12, 8)


def of(store: Store, *, profile: dict[str, Any] | None = None, **changes: Any) -> Campaign:
    """A campaign of a cluster's profile, or of another machine than the catalog's."""
    request = campaign_request(**changes)
    machine = machine_of(request.machine)
    return write(
        store,
        create_campaign,
        request,
        model=load_model("gpt-22b"),
        machine=machine,
        simulated=request.evaluator == "simulated",
        profile=profile,
    )


BIGGER = as_table(replace(load_machine("frontier"), memory_gib=96.0))
RENAMED = as_table(replace(load_machine("frontier"), max_nodes=3))
MEASURED: dict[str, Any] = {"evaluator": "local"}
FOR_REAL = {"evaluator": "slurm", "slurm": {"profile": "frontier"}}


COMPARED: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    ({}, {}, True),
    ({}, {"machine": "perlmutter"}, False),
    ({}, {"machine": BIGGER}, False),
    ({}, {"machine": RENAMED}, True),
    ({}, MEASURED, False),
    ({}, FOR_REAL, False),
    ({}, {"seed": 1}, False),
    (MEASURED, FOR_REAL, True),
    (MEASURED, MEASURED | {"seed": 1}, True),
    (MEASURED, FOR_REAL | {"profile": ADAPTER}, False),
    (FOR_REAL | {"profile": ADAPTER}, FOR_REAL | {"profile": ADAPTER}, True),
    (MEASURED | {"profile": ADAPTER}, MEASURED | {"profile": OVERLAPPING}, False),
    (MEASURED | {"profile": OVERLAPPING}, FOR_REAL | {"profile": OVERLAPPING}, True),
]


def test_only_trials_of_the_same_machine_and_program_tell(store: Store) -> None:
    """Above all, what was simulated never feeds what is measured, nor the other way round."""
    stacks = []
    for one, other, tells in COMPARED:
        ids = [of(store, **each).id for each in (one, other)]
        with store.session() as session:
            rows = [campaign_row(session, number) for number in ids]
        first, second = ((row.machine_digest, row.program, row.simulated) for row in rows)
        assert (first == second) is tells, (one, other)
        stacks += [first, second]
    for number in range(1, len(stacks) + 1):
        campaign = read(store, get_campaign, number)
        with_ends(store, campaign, OK)
    with store.session() as session:
        found = past_trials(session, campaign_row(session, 1))
    assert {trial.campaign_id for trial in found} == {
        number for number, stack in enumerate(stacks, start=1) if stack == stacks[0]
    } - {1}


def observation(campaign: Campaign, **changes: Any) -> EarlierObservation:
    shown: dict[str, Any] = {
        "model": campaign.model,
        "strategy": STRATEGY,
        "iteration_time_s": 2.5,
        "peak_memory_gib": 40.0,
        "fitted": True,
        "campaign_id": campaign.id,
        "versions": VERSIONS,
        "age_days": 3.5,
    }
    return EarlierObservation.model_validate(shown | changes)


def store_start(
    store: Store, campaign: Campaign, observations: Sequence[EarlierObservation]
) -> None:
    with store.transaction() as session:
        keep_start(session, campaign_row(session, campaign.id), observations)


def test_what_a_campaign_starts_from_is_read_as_it_was_stored(store: Store) -> None:
    first, second, later = created(store), created(store, name="a second one"), created(store)
    assert later.started_from is None
    observations = [observation(first), *[observation(second, age_days=1.0)] * 2]
    store_start(store, later, observations)
    assert read(store, earlier_observations, later.id) == observations
    assert read(store, earlier_observations, first.id) == []
    assert read(store, get_campaign, later.id).started_from == [
        StartedFrom(campaign_id=second.id, name="a second one", trials=2),
        StartedFrom(campaign_id=first.id, name=first.name, trials=1),
    ]
    store_start(store, first, [])
    assert read(store, get_campaign, first.id).started_from == []


def delete(store: Store, campaign: Campaign) -> None:
    moved(store, campaign.id, CampaignState.DONE)
    write(store, delete_campaign, campaign.id)


def test_a_start_outlives_the_campaigns_that_it_came_from(store: Store) -> None:
    first, later = created(store), created(store)
    store_start(store, later, [observation(first)])
    delete(store, first)
    assert read(store, earlier_observations, later.id) == [observation(first)]
    (start,) = read(store, get_campaign, later.id).started_from or []
    listed = CampaignList(store, Cache()).page().items
    assert (start.campaign_id, start.name, start.deleted) == (first.id, first.name, True)
    assert [campaign.started_from for campaign in listed] == [[start]]
    delete(store, later)
    with store.session() as session:
        assert session.scalars(select(EarlierTrialsRow)).all() == []


def test_what_a_start_was_worth_is_noted_once_it_is_known(store: Store) -> None:
    campaign = created(store)
    worth = StartWorth(trials=12, error_without=0.21, error_with=0.06)
    for known in (worth, None):
        with store.transaction() as session:
            note_worth(campaign_row(session, campaign.id), known)
        assert read(store, get_campaign, campaign.id).start_worth == worth


def test_many_past_trials_are_read_in_few_statements(store: Store) -> None:
    for _ in range(3):
        with_ends(store, created(store), *[OK] * 40)
    campaign = created(store)
    with statements_of(store) as statements:
        found = past(store, campaign, most=100)
    assert len(found) == 100
    assert len(statements) == 3, "the campaign, the trials, their models"
    trials = read(store, trials_by_id, [trial.id for trial in found[:7]])
    assert set(trials) == {trial.id for trial in found[:7]}
