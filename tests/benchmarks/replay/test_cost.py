"""A whole campaign beside the study's way, on a small question."""

from __future__ import annotations

from typing import Any

from autotune.schemas.choices import TrialState
from tests.autotune.recommendation.examples import A, B, C, trial
from tests.benchmarks.search_cost import (
    MOST_OF_THE_STUDYS,
    TRIAL_HOURS,
    cost,
    of_the_search,
    table,
)

SMALL: dict[str, Any] = {
    "model": "gpt-22b",
    "nodes": 2,
    "space": {
        "tensor_parallel": [1, 2, 4, 8],
        "pipeline_parallel": [1, 2, 4, 8],
        "micro_batch_size": [1, 2, 4],
        "gradient_accumulation_steps": [8, 16],
        "zero_stage": 1,
        "num_nodes": 2,
        "activation_checkpointing": "full",
    },
    "budget": {"max_trials": 4},
}


def test_failures_are_counted_among_the_trials_that_the_search_chose() -> None:
    trials = [
        trial(1, A, state=TrialState.OOM, purpose="baseline"),
        trial(2, B, seconds=1.0),
        trial(3, C, state=TrialState.OOM),
        trial(4, C, state=TrialState.CANCELLED),
        trial(5, B, state=TrialState.CRASHED, purpose="confirmation"),
    ]
    assert of_the_search(trials) == (3, 1)


def test_the_study_takes_twenty_minutes_on_all_nodes_for_each_trial_that_runs() -> None:
    one = cost("22B on 2 nodes", SMALL, seed=1, screen_nodes="auto")
    ran = one.study_trials - one.study_failed
    assert 1 <= one.study_trials <= MOST_OF_THE_STUDYS
    assert one.study_found
    of_runs = 2 * TRIAL_HOURS * ran
    assert of_runs <= one.study_node_hours < of_runs + 2 * TRIAL_HOURS * one.study_failed + 1e-9
    assert 4 <= one.trials <= 10
    assert one.failed <= one.searched < one.trials
    assert 0.0 < one.node_hours < one.study_node_hours
    assert "22B on 2 nodes, seed 1" in table([one])
