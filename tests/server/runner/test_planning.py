from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from autotune.schemas import Trial, TrialState
from server.runner.planning import (
    is_late,
    observations,
    protocol_of,
    reason_to_end_search,
)
from server.store import Store
from tests.server.asking import STRATEGY, created, with_trials

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("accumulation", "purpose", "measured", "longer"),
    [
        (64, "search", (4, 8), 1.0),
        (64, "confirmation", (64,), 64 / 12),
        (8, "confirmation", (8,), 1.0),
    ],
)
def test_a_confirmation_has_time_for_all_of_its_micro_batches(
    store: Store, accumulation: int, purpose: str, measured: tuple[int, ...], longer: float
) -> None:
    campaign = created(store)
    strategy = STRATEGY.model_copy(update={"gradient_accumulation_steps": accumulation})
    [trial] = with_trials(store, campaign, 1)
    asked = protocol_of(
        campaign, trial.model_copy(update={"strategy": strategy, "purpose": purpose})
    )
    assert asked.accumulations == measured
    limit = campaign.request.protocol.time_limit_s
    assert asked.time_limit_s == pytest.approx(longer * limit)


def ended(trials: list[Trial], state: TrialState, **changes: object) -> list[Trial]:
    return [trial.model_copy(update={"state": state, **changes}) for trial in trials]


def test_what_says_nothing_of_a_strategy_is_not_told_and_a_refusal_only_rules_it_out(
    store: Store,
) -> None:
    trials = with_trials(store, created(store), 5)
    states = (
        TrialState.PREEMPTED,
        TrialState.NODE_FAIL,
        TrialState.LOST,
        TrialState.CANCELLED,
        TrialState.REFUSED,
    )
    found = [ended([t], state)[0] for t, state in zip(trials, states, strict=True)]
    assert [o.state for o in observations(found, objective="tokens_per_s")] == ["refused"]


def test_a_trial_that_was_withdrawn_from_a_queue_is_not_of_the_budget(store: Store) -> None:
    campaign = created(store, budget={"max_trials": 2})
    trials = with_trials(store, campaign, 2)
    assert reason_to_end_search(campaign, trials, now=NOW) is not None
    withdrawn = ended(trials[:1], TrialState.CANCELLED, node_hours=0.0)
    assert reason_to_end_search(campaign, [*withdrawn, trials[1]], now=NOW) is None
    ran = ended(trials[:1], TrialState.CANCELLED, node_hours=0.5)
    assert reason_to_end_search(campaign, [*ran, trials[1]], now=NOW) is not None


def test_waiting_costs_nothing_and_does_not_lengthen_what_is_expected(store: Store) -> None:
    """Two trials held two nodes for an hour each; they waited for a day."""
    campaign = created(store, budget={"max_trials": 50, "max_node_hours": 10.5})
    done, waiting = with_trials(store, campaign, 4)[:2], with_trials(store, campaign, 1)
    cost = {"duration_s": 3600.0, "node_hours": 2.0}
    times = {"created_at": NOW - timedelta(days=1), "finished_at": NOW}
    trials = ended(done, TrialState.OOM, **cost, **times)
    reserve = 4.0  # of the confirmation, on all four nodes
    assert reason_to_end_search(campaign, [*trials, *waiting], now=NOW) is None
    spent = sum(trial.node_hours or 0.0 for trial in trials)
    assert spent + 2.0 + reserve < 10.5 < spent + 2 * 2.0 + reserve
    assert reason_to_end_search(campaign, [*trials, *waiting, *waiting], now=NOW) is not None


def test_a_deadline_passes(store: Store) -> None:
    campaign = created(store, budget={"deadline": NOW.isoformat()})
    assert is_late(campaign, now=NOW)
    assert not is_late(campaign, now=NOW - timedelta(seconds=1))
    assert not is_late(created(store), now=NOW)
