"""The map of a space: what ran, what may, what does not fit."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import numpy as np
import pytest

from autotune.explanation.layout_map import layout_map
from autotune.explanation.rates import BelievedRates
from autotune.schemas.figures import PlaceState
from autotune.search import SearchTrial
from autotune.search.layouts import log_work
from search_spaces.lattice import Lattice
from tests.autotune.explanation.scene import TABLE_V, TRIALS, known, world


def ended() -> list[SearchTrial]:
    """Those that `known` rests on."""
    here = world(TABLE_V)
    some = np.random.default_rng(1).permutation(len(here.rates))[:TRIALS]
    return [here.trial(row) for row in [*some, *np.argsort(-here.rates)[:5]]]


def test_every_cell_says_what_is_known_of_it() -> None:
    space, trials = world(TABLE_V).space, ended()
    cells = layout_map(space, known(TABLE_V), trials)
    lattice = space.lattice()
    legal = {(each.tensor_parallel, each.pipeline_parallel) for each in lattice}
    assert {(each.x, each.y) for each in cells} == legal
    assert len(cells) == len(legal)
    assert sum(cell.strategies for cell in cells) == len(lattice)
    assert sum(cell.trials for cell in cells) == len(trials)
    assert {cell.state for cell in cells} <= set(get_args(PlaceState))
    assert {"measured", "predicted"} < {cell.state for cell in cells}
    for cell in cells:
        own = [
            trial
            for trial in trials
            if (trial.strategy.tensor_parallel, trial.strategy.pipeline_parallel)
            == (cell.x, cell.y)
        ]
        assert (cell.state == "measured") == any(trial.state == "ok" for trial in own)
        assert cell.out_of_memory == sum(trial.out_of_memory for trial in own)
        if cell.state == "predicted":
            assert cell.low is not None
            assert cell.rate is not None
            assert cell.high is not None
            assert cell.low < cell.rate < cell.high
            assert cell.fit_probability >= 0.5
        if cell.state in {"out_of_memory", "too_large"}:
            assert (cell.state == "out_of_memory") == any(trial.out_of_memory for trial in own)
            assert (cell.strategy, cell.rate) == (None, None)
            assert cell.fit_probability < 0.5


def test_the_best_of_each_cell() -> None:
    """By measurement where something ran, by belief among what fits where nothing did."""
    space, calibration, trials = world(TABLE_V).space, known(TABLE_V), ended()
    cells = layout_map(space, calibration, trials)
    rates = BelievedRates.of(space, calibration, least_fit_probability=0.5)
    place = [rates.lattice[name] for name in ("tensor_parallel", "pipeline_parallel")]
    for cell in cells:
        if cell.state == "predicted":
            there = (place[0] == cell.x) & (place[1] == cell.y)
            assert cell.rate == pytest.approx(np.exp(rates.log_rate[there].max()))
    ok = [trial for trial in trials if trial.state == "ok"]
    lattice = Lattice.of([trial.strategy for trial in ok], gpus_per_node=8)
    work = log_work(lattice, space.transformer, space.machine, objective="tokens_per_s")
    measured = np.exp(work) / [trial.iteration_time_s or np.inf for trial in ok]
    best = max((cell for cell in cells if cell.state == "measured"), key=lambda c: c.rate or 0)
    assert best.rate == pytest.approx(measured.max())
    assert best.strategy == ok[int(np.argmax(measured))].strategy


def test_narrowed_to_one_micro_batch_and_number_of_nodes() -> None:
    space, trials = world(TABLE_V).space, ended()
    cells = layout_map(space, known(TABLE_V), trials, micro_batch_size=5, num_nodes=16)
    shown = [cell.strategy for cell in cells if cell.strategy is not None]
    assert {(each.micro_batch_size, each.num_nodes) for each in shown} == {(5, 16)}
    counted = [t for t in trials if (t.strategy.micro_batch_size, t.strategy.num_nodes) == (5, 16)]
    assert sum(cell.trials for cell in cells) == len(counted)
    assert layout_map(space, known(TABLE_V), trials, micro_batch_size=77) == []


def test_over_any_two_dimensions() -> None:
    space, trials = world(TABLE_V).space, ended()
    cells = layout_map(space, known(TABLE_V), trials, x="micro_batch_size", y="num_nodes")
    lattice = space.lattice()
    places = list(
        zip(*(lattice[name].tolist() for name in ("micro_batch_size", "num_nodes")), strict=True)
    )
    assert {(cell.x, cell.y): cell.strategies for cell in cells} == Counter(places)
    for cell in cells:
        own = [
            t
            for t in trials
            if (t.strategy.micro_batch_size, t.strategy.num_nodes) == (cell.x, cell.y)
        ]
        assert cell.trials == len(own)
