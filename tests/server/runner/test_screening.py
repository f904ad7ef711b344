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
from tests.server.running import Running

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
    "fresh": True,
}


@pytest.mark.soak
def test_few_nodes_search_for_less_than_all_and_all_confirm(running: Running) -> None:
    campaign = running.done(**WIDE)
    trials = running.trials(campaign)
    assert campaign.screening is not None
    few = campaign.screening.nodes
    narrow = [trial for trial in trials if trial.stands_for_nodes is not None]
    assert len(narrow) >= 5
    assert {(t.strategy.num_nodes, t.stands_for_nodes) for t in narrow} == {(few, 64)}
    in_full = [trial for trial in trials if trial.stands_for_nodes is None]
    assert node_hours(narrow) / len(narrow) < 0.6 * node_hours(in_full) / len(in_full)
    assert "time than was projected" in campaign.screening.outcome
    found = recommend(campaign, trials)
    assert found is not None
    assert (found.best.confirmed, found.best.strategy.num_nodes) == (True, 64)
    best = campaign.best_trial
    assert best not in {trial.number for trial in narrow}, "rates of few nodes are not ranked"
    check_limits(campaign, trials)


def node_hours(trials: Sequence[Trial]) -> float:
    return sum(trial.node_hours or 0.0 for trial in trials)


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
