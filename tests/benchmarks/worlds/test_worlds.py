"""Searches on simulated machines, and a whole campaign beside the study's way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.cost_model import estimate
from tests.benchmarks.search_cost import TRIAL_HOURS, cost, table
from tests.benchmarks.worlds.searches import SEARCHES, run
from tests.benchmarks.worlds.world import CHECKPOINTING, Question, RealMachine, World

SMALL = Question(
    model="gpt-22b",
    machine="dgx-a100",
    nodes=1,
    choices=CHECKPOINTING,
    batch=32,
    earlier=("llama-2-7b", 1),
)
CAMPAIGN: dict[str, Any] = {
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


@pytest.fixture(scope="module")
def world() -> World:
    return World.of(SMALL, seed=1, surprise=0.1)


def test_costs_of_a_machine_are_never_a_gain_and_no_noise(world: World) -> None:
    real, again = (RealMachine.of(world.space.machine, seed=1, surprise=0.1) for _ in range(2))
    lattice, transformer = world.layouts.lattice, world.space.transformer
    formulas = estimate(transformer, real.machine, lattice, parameters=real.parameters)
    seconds, _ = real.measure(transformer, lattice)
    slower = seconds / formulas.iteration_time_s
    assert slower.min() >= 1.0
    assert 1.02 < slower.max() < 2.0
    assert seconds == pytest.approx(again.measure(transformer, lattice)[0])
    assert world.trial(int(np.argmax(world.peaks_gib))).out_of_memory
    best = int(np.argmax(world.rates))
    assert world.trial(best).iteration_time_s == pytest.approx(world.seconds[best], rel=0.05)


@pytest.mark.parametrize("search", SEARCHES)
def test_each_search_runs(world: World, search: str) -> None:
    ended = run(search, world, name="small", most=12)
    assert ended.trials is None or 1 <= ended.trials <= 12
    if "ours" in search:
        assert ended.trials is not None


def test_the_study_takes_twenty_minutes_on_all_nodes_for_each_trial_that_runs() -> None:
    one = cost("22B on 2 nodes", CAMPAIGN, seed=1, screen_nodes="auto")
    of_runs = 2 * TRIAL_HOURS * (one.study_trials - one.study_failed)
    assert one.study_found
    assert of_runs <= one.study_node_hours < of_runs + 2 * TRIAL_HOURS * one.study_failed + 1e-9
    assert one.failed <= one.searched < one.trials
    assert 0.0 < one.node_hours < one.study_node_hours
    assert "22B on 2 nodes, seed 1" in table([one])
