"""Curves of single dimensions: the truth where it is additive, whatever is legal."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.cost_model.columns import Array
from autotune.explanation.marginal import marginal
from autotune.explanation.rates import BelievedRates
from search_spaces.lattice import Lattice
from tests.autotune.explanation.scene import TABLE_V, known, world
from tests.autotune.records import strategy

TENSOR, PIPELINE, MICRO_BATCH = (1, 2, 4, 8), (1, 2, 4), (1, 2)


def lattice_of(rows: list[tuple[int, int, int]]) -> Lattice:
    return Lattice.of(
        [
            strategy(tp=tensor, pp=pipeline, mbs=micro_batch, gas=8, nodes=1)
            for tensor, pipeline, micro_batch in rows
        ],
        gpus_per_node=32,
    )


def rates_of(lattice: Lattice, log_rate: Array, *, spread: float = 0.0) -> BelievedRates:
    noise = np.random.default_rng(0).normal(0.0, spread, (len(log_rate), 50))
    return BelievedRates(
        lattice=lattice,
        objective="tokens_per_s",
        log_rate=log_rate,
        draws=log_rate[:, np.newaxis] + noise,
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1), st.integers(8, 24))
def test_steps_are_exact_where_dimensions_add_up(seed: int, count: int) -> None:
    """Whichever combinations are missing: a plain mean over those that are there is not."""
    generator = np.random.default_rng(seed)
    every = list(product(TENSOR, PIPELINE, MICRO_BATCH))
    rows = [every[at] for at in generator.permutation(len(every))[:count]]
    of_tensor = dict(zip(TENSOR, generator.normal(size=4), strict=True))
    of_others = {pair: generator.normal() for pair in product(PIPELINE, MICRO_BATCH)}
    log_rate = np.array([of_tensor[t] + of_others[p, b] for t, p, b in rows])
    rates = rates_of(lattice_of(rows), log_rate)
    if "tensor_parallel" not in rates.dimensions:
        return
    curve = marginal(rates, "tensor_parallel")
    for step in curve.steps:
        exact = np.expm1(of_tensor[int(step.upper)] - of_tensor[int(step.lower)])
        assert step.change == pytest.approx(exact, rel=1e-6, abs=1e-8)
    weights = np.array([point.strategies for point in curve.points])
    levels = np.log1p([point.change / 100.0 for point in curve.points])
    assert weights @ levels == pytest.approx(0.0, abs=1e-8)


def test_values_that_nothing_links_have_no_step() -> None:
    rows = [(1, 1, 1), (2, 1, 1), (4, 2, 1), (8, 2, 1)]
    curve = marginal(rates_of(lattice_of(rows), np.log([1.0, 0.9, 2.0, 1.0])), "tensor_parallel")
    assert [(step.lower, step.upper) for step in curve.steps] == [(1, 2), (4, 8)]
    assert [step.change for step in curve.steps] == pytest.approx([-0.1, -0.5])
    assert [step.sentence for step in curve.steps] == [
        "TP 1 to 2 costs 10 % (10 to 10 %)",
        "TP 4 to 8 costs 50 % (50 to 50 %)",
    ]
    assert curve.sentence == curve.steps[1].sentence


def test_a_long_way_of_small_steps_is_told_as_one() -> None:
    """Each step is too small for a word, all of them together are not."""
    rows = [(1, 1, micro_batch) for micro_batch in range(1, 11)]
    log_rate = np.array([0.004 * micro_batch for *_, micro_batch in rows])
    curve = marginal(rates_of(lattice_of(rows), log_rate), "micro_batch_size")
    assert not any(step.clear for step in curve.steps)
    assert curve.sentence == "MBS 1 to 10 gains 4 % (4 to 4 %)"


def test_dimensions_that_only_change_together_are_not_told_apart() -> None:
    rows = [(8, 1, 1), (4, 2, 1)]
    curve = marginal(rates_of(lattice_of(rows), np.array([0.0, 1.0])), "tensor_parallel")
    assert curve.steps == ()
    assert curve.sentence == "No strategies differ in TP alone"
    changes = [point.change for point in curve.points]
    assert changes == pytest.approx(100.0 * np.expm1([0.5, -0.5]))


def test_a_doubtful_step_is_not_told_as_a_gain() -> None:
    rows = list(product(TENSOR, PIPELINE, MICRO_BATCH))
    curve = marginal(
        rates_of(lattice_of(rows), np.zeros(len(rows)), spread=0.2), "micro_batch_size"
    )
    assert curve.sentence == "MBS makes no clear difference"
    assert [step.clear for step in curve.steps] == [False]


def test_of_a_real_space() -> None:
    space = world(TABLE_V).space
    rates = BelievedRates.of(space, known(TABLE_V))
    for dimension in rates.dimensions:
        curve = marginal(rates, dimension)
        assert sum(point.strategies for point in curve.points) == len(rates.lattice)
        assert all(point.low <= point.change <= point.high for point in curve.points)
        assert all(step.low <= step.change <= step.high for step in curve.steps)
    assert marginal(rates, "pipeline_parallel").sentence.startswith("PP ")
    with pytest.raises(ValueError, match="not in"):
        marginal(rates, "precision")
