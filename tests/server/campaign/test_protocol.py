"""What a trial measures, and when it is given up."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from autotune.calibration import Calibration, Observation
from autotune.measurement.metrics import AccumulationMeasurement, metrics
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Accumulation, Trial
from server.campaign.protocol import protocol_of
from server.campaign.results import Workload
from server.store import Store
from tests.server.asking import STRATEGY, created, with_trials


@pytest.mark.parametrize(
    ("accumulation", "purpose", "measured", "longer"),
    [
        (64, "search", (4, 8), 1.0),
        (3, "search", (3,), 1.0),
        (3, "confirmation", (3,), 1.0),
        (64, "confirmation", (64,), 64 / 12),
        (8, "confirmation", (8,), 1.0),
    ],
)
def test_a_confirmation_has_time_for_all_of_its_micro_batches(
    store: Store, accumulation: int, purpose: str, measured: tuple[int, ...], longer: float
) -> None:
    campaign = created(store)
    strategy = replace(STRATEGY, gradient_accumulation_steps=accumulation)
    [trial] = with_trials(store, campaign, 1)
    protocol = protocol_of(
        campaign, trial.model_copy(update={"strategy": strategy, "purpose": purpose}), trials=()
    )
    assert protocol.accumulations == measured
    limit = campaign.request.protocol.time_limit_s
    assert protocol.time_limit_s == pytest.approx(longer * limit)


def with_best(trial: Trial, store: Store, seconds: float, *, finished: int = -1) -> Trial:
    """It as ended so many seconds after the trial was created, with this iteration time."""
    workload, strategy = Workload.of(created(store)), trial.strategy
    own = strategy.gradient_accumulation_steps
    measured = AccumulationMeasurement(
        gradient_accumulation_steps=own, iteration_times_s=(seconds,)
    )
    figures = metrics(workload.transformer, workload.machine, strategy, [measured])
    at = trial.created_at + timedelta(seconds=finished)
    return trial.model_copy(update={"state": TrialState.OK, "metrics": figures, "finished_at": at})


def with_accumulation(trial: Trial, accumulation: int) -> Trial:
    strategy = trial.strategy.with_accumulation(accumulation)
    return trial.model_copy(update={"strategy": strategy})


def test_a_search_trial_far_below_the_best_ended_one_is_given_up(store: Store) -> None:
    """An iteration of a smaller GAS takes as much less as is predicted."""
    campaign = created(store)
    trial = with_accumulation(with_trials(store, campaign, 1)[0], 64)
    best, later = with_best(trial, store, 6.0), with_best(trial, store, 0.1, finished=1)
    low_s, high_s = protocol_of(campaign, trial, trials=[best, later]).give_up_above_s
    own_s = 6.0 / campaign.request.protocol.give_up_below
    assert 0 < low_s < high_s < own_s
    assert (high_s - low_s) / 4 == pytest.approx((own_s - high_s) / 56, rel=0.2)
    few = protocol_of(campaign, with_accumulation(trial, 3), trials=[best])
    assert few.give_up_above_s == pytest.approx([own_s * 3 / 64])
    confirmation = trial.model_copy(update={"purpose": "confirmation"})
    assert protocol_of(campaign, confirmation, trials=[best]).give_up_above_s == ()
    assert protocol_of(campaign, trial, trials=[later, trial]).give_up_above_s == ()
    never = created(store, protocol={"give_up_below": 0})
    assert protocol_of(never, trial, trials=[best]).give_up_above_s == ()


def test_the_best_is_not_given_up_where_the_cost_model_is_wrong(store: Store) -> None:
    """Its small GAS took nearly as long as its own: much is fixed that is not predicted."""
    campaign = created(store)
    trial = with_accumulation(with_trials(store, campaign, 1)[0], 64)
    point = Accumulation(
        gradient_accumulation_steps=4,
        global_batch_size=1,
        iteration_time_s=5.0,
        tokens_per_s=1.0,
        measured=True,
    )
    best = with_best(trial, store, 6.0).model_copy(update={"accumulations": [point]})
    low_s, high_s = protocol_of(campaign, trial, trials=[best]).give_up_above_s
    own_s = 6.0 / campaign.request.protocol.give_up_below
    assert low_s == pytest.approx(5.0 / campaign.request.protocol.give_up_below)
    assert low_s < high_s == own_s


def test_limits_follow_what_trials_have_shown_of_the_machine(store: Store) -> None:
    """Where each iteration has much that is fixed, one of a small GAS is given longer; the less is
    known, the longer, and the best itself is never given up."""
    campaign = created(store)
    workload = Workload.of(campaign)
    trial = with_accumulation(with_trials(store, campaign, 1)[0], 64)
    best = with_best(trial, store, 6.0)

    def least_limit_s(*observations: Observation) -> float:
        known = Calibration.of(workload.machine, observations)
        limits = protocol_of(campaign, trial, trials=[best], calibration=lambda: known)
        return limits.give_up_above_s[0]

    own = trial.strategy
    shown = [
        Observation(
            transformer=workload.transformer,
            strategy=strategy.with_accumulation(gas),
            iteration_time_s=fixed_s + gas * 0.1,
        )
        for fixed_s in (0.2, 5.0)
        for strategy in (own, replace(own, micro_batch_size=2), replace(own, zero_stage=0))
        for gas in (4, 8, 64)
    ]
    little, much = shown[:9], shown[9:]
    plain_s = protocol_of(campaign, trial, trials=[best]).give_up_above_s[0]
    assert plain_s < least_limit_s()
    assert least_limit_s(*little) < least_limit_s()
    assert least_limit_s(*much) > 2 * least_limit_s(*little)
