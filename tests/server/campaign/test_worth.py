"""What a trial costs beside the training that its layout is for."""

from __future__ import annotations

import pytest

from autotune.schemas.choices import Objective
from autotune.schemas.requests import Budget
from autotune.schemas.trials import Trial
from server.campaign.worth import TrainingAccount, trial_cost
from tests.autotune.recommendation.examples import A, campaign, trial


def account(objective: Objective, *, train_tokens: float | None = 1e9) -> TrainingAccount | None:
    plain = campaign(objective=objective)
    budget = Budget(train_tokens=train_tokens)
    subject = plain.model_copy(
        update={"request": plain.request.model_copy(update={"budget": budget})}
    )
    return TrainingAccount.of(subject, [trial(1, A, seconds=20.0)])


def test_energy_and_node_hours_are_each_weighed_in_own_units() -> None:
    hours, energy = account("tokens_per_s"), account("tokens_per_joule")
    assert hours is not None
    assert energy is not None
    assert (hours.unit, energy.unit) == ("node-hours", "kWh")
    assert hours.cost(3.0) == 3.0
    node_kw = energy.training / hours.training
    assert 1.0 < node_kw < 5.0, "a node of 8 GPUs with its host"
    assert energy.cost(3.0) == pytest.approx(3.0 * node_kw)


def test_without_a_training_there_is_nothing_to_weigh_against() -> None:
    assert account("tokens_per_joule", train_tokens=None) is None


def test_trials_cost_the_iterations_that_the_campaign_has_needed() -> None:
    """The least number until a trial has shown how noisy iterations are; what was given up says
    nothing of that."""
    subject = campaign()
    fewest = subject.request.protocol.measured_iterations
    quiet = trial(1, A, seconds=1.0)
    assert trial_cost(subject, []).measured_iterations == fewest
    assert trial_cost(subject, [quiet]).measured_iterations == fewest

    def timed(count: int) -> Trial:
        times = {"iteration_times_s": [1.0] * count}
        points = [point.model_copy(update=times) for point in quiet.accumulations]
        return quiet.model_copy(update={"accumulations": points})

    noisy = trial_cost(subject, [timed(9), timed(7), timed(2)])
    assert noisy.measured_iterations == 8
