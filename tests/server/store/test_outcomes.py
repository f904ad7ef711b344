"""What follows from the ends of trials is written down, and no reading of rows fits a model. The
figure that a campaign is listed with is the one that is recommended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from autotune.calibration import Observation
from autotune.calibration.history import observation_shape
from autotune.recommendation.recommendation import recommend
from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import FewNodes
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.trials import TrialMetrics
from autotune.schemas.wire import TrialPurpose
from autotune.search import belief_without_start
from server.cache import Cache
from server.campaign.best import ended_trials
from server.campaign.start import belief_of_campaign, versions_of
from server.store import Store
from server.store.campaign_list import CampaignList, refresh_best
from server.store.campaigns import campaign_row, get_campaign, pause_campaign
from server.store.history import earlier_observations, keep_start
from server.store.outcomes import OutcomePart
from server.store.store import announce
from server.store.tables import OutcomeRow
from server.store.trials import all_trials, finish_trial, insert_trials
from tests.server.asking import STRATEGY, created, ended, new_trial, read, write
from tests.server.fits import noted_fits
from tests.server.statements import statements_of
from tests.server.store.test_trials import METRICS

RatedTrial = tuple[int, TrialPurpose, float | None]
"""A trial: the micro-batch size that tells layouts apart, its purpose, and its rate; None where it
ran out of memory."""


def campaign_of(store: Store, trials: list[RatedTrial], **changes: object) -> int:
    campaign = created(store, **changes)
    with store.transaction() as session:
        for batch, purpose, rate in trials:
            strategy = replace(STRATEGY, micro_batch_size=batch)
            new = new_trial(strategy=strategy, purpose=purpose)
            [trial] = insert_trials(session, campaign_row(session, campaign.id), [new])
            if rate is None:
                finish_trial(session, trial, ended(TrialState.OOM))
                continue
            figures = METRICS | {"iteration_time_s": 1 / rate, "tokens_per_s": rate}
            figures |= {"peak_memory_gib": 10.0 * batch}
            done = ended(TrialState.OK, metrics=TrialMetrics.model_validate(figures))
            finish_trial(session, trial, done)
    return campaign.id


def screened(store: Store, seconds: dict[int, float]) -> int:
    """A campaign for 16 nodes whose trials ran on 4, with an iteration's seconds by micro-batch
    size."""
    campaign = created(store, nodes=16, pool_nodes=16)
    with store.transaction() as session:
        row = campaign_row(session, campaign.id)
        row.screening = FewNodes(nodes=4, reason="few nodes tell enough").model_dump(mode="json")
        announce(session, "campaign", campaign_id=campaign.id)
    for batch, iteration_time_s in seconds.items():
        end_on_few_nodes(store, campaign.id, batch, seconds=iteration_time_s)
    return campaign.id


def end_on_few_nodes(store: Store, campaign_id: int, batch: int, *, seconds: float) -> None:
    strategy = replace(STRATEGY, num_nodes=4, micro_batch_size=batch)
    figures = METRICS | {"iteration_time_s": seconds, "tokens_per_s": 1e5 * batch / seconds}
    done = ended(TrialState.OK, metrics=TrialMetrics.model_validate(figures))
    with store.transaction() as session:
        new = new_trial(strategy=strategy, stands_for_nodes=16)
        [trial] = insert_trials(session, campaign_row(session, campaign_id), [new])
        finish_trial(session, trial, done)


BEST: list[tuple[list[RatedTrial], float | None, float | None]] = [
    ([(1, "search", 5.0), (2, "search", 9.0)], 9.0, 9.0),
    # One that failed when it was measured again is not the best.
    ([(1, "search", 5.0), (2, "search", 9.0), (2, "confirmation", None)], 5.0, 9.0),
    # A confirmed one is, at the median of its trials, though another was faster once.
    (
        [(1, "search", 6.0), (2, "search", 9.0), (1, "confirmation", 4.0)],
        4.8,
        9.0,
    ),
    ([(1, "search", None)], None, None),
]


def test_the_best_is_what_is_recommended(store: Store) -> None:
    for trials, best, fastest in BEST:
        number = campaign_of(store, trials)
        campaign = read(store, get_campaign, number)
        assert campaign.best_objective == pytest.approx(best), trials
        assert campaign.fastest_objective == pytest.approx(fastest), trials


def test_ended_starts_of_knobs_are_counted(store: Store) -> None:
    starts: list[RatedTrial] = [(1, "search", 6.0), (1, "confirmation", 5.9), (1, "knob", 6.1)]
    number = campaign_of(store, starts)
    assert ended_trials(read(store, get_campaign, number)) == len(starts)
    with store.transaction() as session:
        insert_trials(session, campaign_row(session, number), [new_trial(purpose="knob")])
    assert ended_trials(read(store, get_campaign, number)) == len(starts)


FEW = {1: 5.0, 2: 4.0}
"""Seconds of an iteration on few nodes, by micro-batch size."""


def test_no_reading_of_rows_fits_a_model(store: Store) -> None:
    campaign_id = screened(store, FEW)
    with noted_fits(store) as fits:
        assert write(store, pause_campaign, campaign_id).state is CampaignState.PAUSED
        assert fits == []
        [found] = CampaignList(store, Cache()).page().items
        assert (found.best_trial, found.best_projected_from_nodes) == (2, 4)
        assert fits == [0], "one fit, while no connection was held"
        assert read(store, get_campaign, campaign_id).best_objective == found.best_objective
        assert CampaignList(store, Cache()).page().items == [found]
        assert fits == [0]
        end_on_few_nodes(store, campaign_id, 4, seconds=2.0)
        [later] = CampaignList(store, Cache()).page(sort="best_objective").items
        assert later.best_trial == 3
        assert fits == [0, 0]


def test_an_unstored_best_is_read_from_the_trials_once(store: Store) -> None:
    number = campaign_of(store, [(1, "search", 5.0), (2, "search", 9.0), (2, "confirmation", None)])
    refresh_best(store, [number, 99999])
    with store.session() as session, statements_of(store) as statements:
        found = get_campaign(session, number)
    assert (found.best_trial, found.fastest_trial) == (1, 2)
    assert not any("trials.metrics" in statement for statement in statements)
    with statements_of(store) as statements:
        refresh_best(store, [number])
    assert len(statements) == 1, "it is up to date"
    [listed] = CampaignList(store, Cache()).page().items
    assert listed.best_so_far == [5.0, 9.0, 9.0]


def test_an_unreadable_stored_best_is_computed_from_the_trials(store: Store) -> None:
    number = campaign_of(store, [(1, "search", 5.0), (2, "search", 9.0), (2, "confirmation", None)])
    refresh_best(store, [number])
    with store.transaction() as session:
        session.execute(update(OutcomeRow).values(document={"layout": "of another state"}))
    assert read(store, get_campaign, number).best_trial == 1


def test_a_best_is_projected_by_what_earlier_trials_have_shown(store: Store) -> None:
    campaign_id = screened(store, FEW)
    belief = belief_without_start(read(store, get_campaign, campaign_id))
    seen = [
        Observation(
            transformer=belief.transformer,
            strategy=replace(STRATEGY, num_nodes=nodes, zero_stage=stage),
            iteration_time_s=seconds,
            fitted=True,
        )
        for stage in (0, 1)
        for nodes, seconds in ((4, FEW[1]), (16, 2 * FEW[1]))
    ]
    shown = [
        EarlierObservation(
            **observation_shape(each).model_dump(), campaign_id=7, versions={}, age_days=1.0
        )
        for each in seen
    ]
    with store.transaction() as session:
        keep_start(session, campaign_row(session, campaign_id), shown)
    refresh_best(store, [campaign_id])
    found = read(store, get_campaign, campaign_id)
    trials = read(store, all_trials, campaign_id)
    earlier = read(store, earlier_observations, campaign_id)
    versions = versions_of(trials, earlier=earlier)
    belief = belief_of_campaign(found, versions=versions, profile=None, earlier=earlier)
    answer, without = (recommend(found, trials, belief=each) for each in (belief, None))
    assert answer is not None
    assert without is not None
    assert found.best_objective == pytest.approx(answer.best.metrics.tokens_per_s)
    assert found.best_objective != pytest.approx(without.best.metrics.tokens_per_s, rel=0.01)


def test_what_a_crash_or_another_version_left_is_made_again(store: Store) -> None:
    part: OutcomePart[str] = OutcomePart("standing", str)
    campaign_id = screened(store, FEW)
    trials = read(store, all_trials, campaign_id)
    assert part.of(store, campaign_id, trials, lambda: "here") == "here"
    assert part.of(store, campaign_id, trials, str) == "here", "as it was written down"
    for left in ({"ended": 1}, {"version": "0.0.1"}, {"document": {"trial": 1}}):
        with store.transaction() as session:
            row = session.get_one(OutcomeRow, (campaign_id, "standing"))
            for name, value in left.items():
                setattr(row, name, value)
        assert part.of(store, campaign_id, trials, lambda: "there") == "there", left
        part.keep(store, campaign_id, "late", ended=1)
        assert part.of(store, campaign_id, trials, str) == "there", "of fewer trials"
        part.keep(store, campaign_id, "here", ended=len(trials))
    part.keep(store, 99999, "gone", ended=1)
