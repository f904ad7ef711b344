"""What one observed end says of other strategies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autotune.calibration.dominance import EXCEPTION, Dominance, needs_as_much
from autotune.calibration.observations import Observation, memory_sample
from autotune.cost_model import estimate
from autotune.cost_model.columns import Columns
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from tests.autotune.records import strategy
from tests.autotune.search.scene import space_22b, space_table_v

SPACE = space_22b()
ONE = strategy(tp=4, pp=2, mbs=2, gas=64, nodes=4)


def columns(*strategies: Strategy) -> Columns:
    return Columns.of(SPACE.transformer, Lattice.of(strategies, gpus_per_node=8))


def bounds(fitted: bool, *others: Strategy) -> list[float]:
    """Probabilities of fitting, 1/2 before ONE has ended so."""
    seen = [Observation(transformer=SPACE.transformer, strategy=ONE, fitted=fitted)]
    sample = memory_sample(seen, SPACE.machine)
    dominance = Dominance.of(columns(*others), sample, memory_gib=SPACE.machine.memory_gib)
    return [float(bound) for bound in dominance.bounded(np.full(len(others), 0.5))]


LARGER = (
    replace(ONE, micro_batch_size=4, gradient_accumulation_steps=32),
    replace(ONE, zero_stage=0),
    replace(ONE, tensor_parallel=2, gradient_accumulation_steps=32),
)
SMALLER = (
    replace(ONE, micro_batch_size=1, gradient_accumulation_steps=128),
    replace(ONE, zero_stage=2),
)
NEITHER = (
    replace(ONE, micro_batch_size=4, zero_stage=2),
    replace(ONE, activation_checkpointing="none", zero_stage=2),
)


def test_more_of_everything_runs_out_where_less_has() -> None:
    assert bounds(False, *LARGER) == [EXCEPTION] * 3
    assert bounds(False, *SMALLER, *NEITHER) == [0.5] * 4


def test_less_of_everything_fits_where_more_has() -> None:
    assert bounds(True, *SMALLER) == [1.0 - EXCEPTION] * 2
    assert bounds(True, *LARGER, *NEITHER) == [0.5] * 5


def test_nothing_observed_bounds_nothing() -> None:
    nothing = Dominance.of(columns(*LARGER), memory_sample([], SPACE.machine), memory_gib=64.0)
    assert nothing.bounded(np.full(3, 0.3)).tolist() == [0.3] * 3


def test_an_accident_is_one_for_all_that_it_speaks_of() -> None:
    sample = memory_sample(
        [Observation(transformer=SPACE.transformer, strategy=ONE, fitted=False)], SPACE.machine
    )
    dominance = Dominance.of(columns(*LARGER), sample, memory_gib=64.0)
    fits = dominance.drawn(np.ones((20_000, 3), dtype=np.bool_), np.random.default_rng(1))
    assert (fits.all(axis=1) == fits.any(axis=1)).all()
    assert 0.5 * EXCEPTION < fits.mean() < 2.0 * EXCEPTION


def test_whoever_needs_as_much_is_estimated_to() -> None:
    """By formulas that the rule does not know, over thousands of pairs of two spaces."""
    for space in (space_22b(), space_table_v()):
        rows = np.random.default_rng(5).choice(len(space.lattice()), 300, replace=False)
        lattice = space.lattice().take(rows)
        memory_gib = estimate(space.transformer, space.machine, lattice).memory_gib
        chosen = Columns.of(space.transformer, lattice)
        one, other = np.nonzero(needs_as_much(chosen, chosen))
        assert len(one) > 2 * len(rows)
        assert (memory_gib[one] > 0.97 * memory_gib[other]).all()
