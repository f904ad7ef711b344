"""The figure that a campaign is listed with is the one that is recommended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import select

from autotune.schemas.campaigns import FewNodes
from autotune.schemas.choices import TrialState
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import TrialMetrics
from autotune.schemas.wire import TrialPurpose
from search_spaces.dimensions import TABLE
from server.campaign.results import NewTrial
from server.store import Store
from server.store.campaigns import campaign_row, get_campaign
from server.store.store import announce
from server.store.tables import TrialRow
from server.store.trials import finish_trial, insert_trials, list_trials
from tests.server.asking import EXPECTED, STRATEGY, created, ended
from tests.server.store.test_trials import METRICS

Told = tuple[int, TrialPurpose, float | None]
"""A trial: the micro-batch size that tells layouts apart, its purpose, and its rate; None where it
ran out of memory."""


def told(store: Store, trials: list[Told], **changes: object) -> int:
    campaign = created(store, **changes)
    with store.transaction() as session:
        for batch, purpose, rate in trials:
            strategy = STRATEGY.model_copy(update={"micro_batch_size": batch})
            new = new_trial(strategy, purpose)
            [trial] = insert_trials(session, campaign_row(session, campaign.id), [new])
            if rate is None:
                finish_trial(session, trial, ended(TrialState.OOM))
                continue
            figures = METRICS | {"iteration_time_s": 1 / rate, "tokens_per_s": rate}
            figures |= {"peak_memory_gib": 10.0 * batch}
            done = ended(TrialState.OK, metrics=TrialMetrics.model_validate(figures))
            finish_trial(session, trial, done)
    return campaign.id


def new_trial(strategy: StrategyShape, purpose: TrialPurpose) -> NewTrial:
    return NewTrial(
        strategy=strategy,
        purpose=purpose,
        predicted_iteration_time_s=1.0,
        predicted_memory_gib=10.0,
        expected=EXPECTED,
    )


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
    strategy = STRATEGY.model_copy(update={"num_nodes": 4, "micro_batch_size": batch})
    figures = METRICS | {"iteration_time_s": seconds, "tokens_per_s": 1e5 * batch / seconds}
    done = ended(TrialState.OK, metrics=TrialMetrics.model_validate(figures))
    with store.transaction() as session:
        new = replace(new_trial(strategy, "search"), stands_for_nodes=16)
        [trial] = insert_trials(session, campaign_row(session, campaign_id), [new])
        finish_trial(session, trial, done)


@pytest.mark.parametrize(
    ("trials", "best", "fastest"),
    [
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
    ],
)
def test_the_best_is_what_is_recommended(
    store: Store, trials: list[Told], best: float | None, fastest: float | None
) -> None:
    number = told(store, trials)
    with store.session() as session:
        campaign = get_campaign(session, number)
    assert campaign.best_objective == (None if best is None else pytest.approx(best))
    assert campaign.fastest_objective == (None if fastest is None else pytest.approx(fastest))


def test_a_dimension_that_is_younger_than_a_trial_makes_no_difference(store: Store) -> None:
    """Rows of earlier versions lack it; what they ran had its default."""
    number = told(store, [(1, "search", 6.0), (2, "search", 9.0), (1, "confirmation", 4.0)])
    young = {dimension.name for dimension in TABLE if dimension.default is not None}
    with store.transaction() as session:
        for row in session.scalars(select(TrialRow)):
            row.strategy = {name: v for name, v in row.strategy.items() if name not in young}
    with store.session() as session:
        assert get_campaign(session, number).best_objective == pytest.approx(4.8)
        page = list_trials(session, number, sort="-virtual_stages", limit=1)
        assert page.items[0].strategy.virtual_stages == 1
        assert page.next is not None
        again = list_trials(session, number, sort="-virtual_stages", cursor=page.next, limit=2)
    assert [trial.number for trial in (*page.items, *again.items)] == [1, 2, 3]
