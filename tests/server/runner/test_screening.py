"""A campaign that searches on few nodes and confirms on all, simulated from end to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from server.campaign.protocol import protocol_of
from tests.server.asking import created
from tests.server.runner.conftest import Running

WIDE: dict[str, Any] = {
    "nodes": 64,
    "pool_nodes": 64,
    "space": {
        "tensor_parallel": [2, 4, 8],
        "pipeline_parallel": [1, 2, 4],
        "micro_batch_size": [1, 2, 4],
        "zero_stage": 1,
        "num_nodes": 64,
        "activation_checkpointing": "full",
        "global_batch_size": 2048,
    },
    "budget": {"max_trials": 10},
    "protocol": {"confirmations": 2, "give_up_below": 0.8},
}


def done(running_on_sqlite: Running, **changes: Any) -> tuple[Campaign, list[Trial]]:
    campaign = created(running_on_sqlite.store, **WIDE | {"fresh": True} | changes)
    return running_on_sqlite.until_state(campaign, "done"), running_on_sqlite.trials(campaign)


def node_hours(trials: Sequence[Trial]) -> float:
    return sum(trial.node_hours or 0.0 for trial in trials)


@pytest.mark.long
def test_few_nodes_find_what_all_find_for_less_and_all_confirm_it(
    running_on_sqlite: Running,
) -> None:
    campaign, trials = done(running_on_sqlite)
    _, in_full = done(running_on_sqlite, screen_nodes="off")
    assert campaign.screening is not None
    few = campaign.screening.nodes
    narrow = [trial for trial in trials if trial.stands_for_nodes is not None]
    assert len(narrow) >= 5
    assert {(t.strategy.num_nodes, t.stands_for_nodes) for t in narrow} == {(few, 64)}
    assert all(trial.stands_for_nodes is None for trial in in_full)
    assert "time than was projected" in campaign.screening.outcome
    found, other = recommend(campaign, trials), recommend(campaign, in_full)
    assert found is not None
    assert other is not None
    assert (found.best.confirmed, found.best.strategy.num_nodes) == (True, 64)
    assert found.best.metrics.tokens_per_s > 0.98 * other.best.metrics.tokens_per_s
    assert node_hours(trials) < 0.6 * node_hours(in_full)
    best = campaign.best_trial
    assert best not in {trial.number for trial in narrow}, "rates of few nodes are not ranked"
    check_limits(campaign, trials)


def check_limits(campaign: Campaign, trials: Sequence[Trial]) -> None:
    """A trial is given up by others of its own width alone."""
    narrow = [t for t in trials if t.stands_for_nodes and t.state is TrialState.OK]
    first, second, third = sorted(narrow, key=lambda t: t.created_at)[-3:]
    baseline = trials[0]
    limits = [
        protocol_of(campaign, third, trials=others).give_up_above_s
        for others in ([baseline], [first], [first, second])
    ]
    assert limits[0] == ()
    assert len(limits[1]) == len(limits[2]) > 0
