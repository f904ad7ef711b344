"""Simulated machines: what differs from what is believed of them, and what searches make of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.cost_model import estimate
from autotune.cost_model.columns import Array
from search_spaces.catalog import load_machine
from tests.benchmarks.worlds.machine import OF_MEMORY, OF_TIME, RealMachine
from tests.benchmarks.worlds.searches import SEARCHES, run
from tests.benchmarks.worlds.world import CHECKPOINTING, Question, World

SMALL = Question(
    model="gpt-22b",
    machine="dgx-a100",
    nodes=1,
    choices=CHECKPOINTING,
    batch=32,
    earlier=("llama-2-7b", 1),
)


@pytest.fixture(scope="module")
def world() -> World:
    return World.of(SMALL, seed=1, surprise=0.1)


def test_a_machine_is_the_same_whatever_it_is_asked(world: World) -> None:
    machine = load_machine("dgx-a100")
    one, again = (RealMachine.of(machine, seed=1, surprise=0.1) for _ in range(2))
    assert (one.of_time, one.of_memory) == (again.of_time, again.of_memory)
    assert one.parameters == again.parameters
    assert one.of_time != RealMachine.of(machine, seed=2, surprise=0.1).of_time
    assert set(one.of_time) == set(OF_TIME)
    assert set(one.of_memory) == set(OF_MEMORY)
    assert world.before().space.machine == world.space.machine


def test_its_costs_are_never_a_gain_and_no_noise(world: World) -> None:
    real = RealMachine.of(world.space.machine, seed=1, surprise=0.1)
    lattice, transformer = world.layouts.lattice, world.space.transformer
    formulas = estimate(transformer, real.machine, lattice, parameters=real.parameters)
    seconds, peaks = real.measure(transformer, lattice)
    slower: Array = seconds / formulas.iteration_time_s
    assert slower.min() >= 1.0
    assert 1.02 < slower.max() < 2.0
    assert seconds == pytest.approx(real.measure(transformer, lattice)[0])
    alike = [
        np.flatnonzero(slower == factor)
        for factor in np.unique(slower)
        if np.sum(slower == factor) > 1
    ]
    assert alike, "what costs do not depend on changes nothing"
    exact = replace(
        real,
        of_time=dict.fromkeys(OF_TIME, 0.0),
        of_memory=dict.fromkeys(OF_MEMORY, 0.0),
    )
    seconds, peaks = exact.measure(transformer, lattice)
    assert seconds == pytest.approx(formulas.iteration_time_s)
    assert peaks == pytest.approx(formulas.memory_gib)


def test_a_layout_beyond_the_memory_fails(world: World) -> None:
    failing = int(np.argmax(world.peaks_gib))
    best = int(np.argmax(world.rates))
    assert world.rates[failing] == 0.0
    assert world.trial(failing).out_of_memory
    ran = world.trial(best)
    assert ran.iteration_time_s == pytest.approx(world.seconds[best], rel=0.05)
    assert ran.peak_memory_gib == world.peaks_gib[best]


@pytest.mark.parametrize("search", SEARCHES)
def test_each_search_runs(world: World, search: str) -> None:
    ended = run(search, world, name="small", most=12)
    assert ended.trials is None or 1 <= ended.trials <= 12
    assert ended.failures <= 12
    if "ours" in search:
        assert ended.trials is not None
