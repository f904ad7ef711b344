"""What the trials teach about memory."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.search.feasibility import MemoryBelief, hopeless, risk
from autotune.search.layouts import Floats
from autotune.search.trial import SearchTrial
from tests.autotune.search.scene import layouts_of, oom, space_22b

LAYOUTS = layouts_of(space_22b())
LIMIT = LAYOUTS.memory_limit_gib


def nearest(gib: float) -> int:
    return int(np.argmin(np.abs(LAYOUTS.memory_gib - gib)))


def learn(*observed: tuple[int, SearchTrial]) -> MemoryBelief:
    rows = np.array([row for row, _ in observed], dtype=np.int64)
    return MemoryBelief.learn(LAYOUTS, rows, [o for _, o in observed])


def ran(row: int, *, peak: float | None) -> tuple[int, SearchTrial]:
    strategy = LAYOUTS.lattice.strategy(row)
    return row, SearchTrial(strategy=strategy, state="ok", objective=1.0, peak_memory_gib=peak)


def ran_out(row: int) -> tuple[int, SearchTrial]:
    return row, oom(LAYOUTS.lattice.strategy(row))


def at(belief: MemoryBelief, *shares: float) -> Floats:
    """Probability to fit of estimates that are these shares of the limit."""
    return belief.probability_to_fit(np.array(shares) * LIMIT)


def test_before_any_trial_the_estimate_is_taken_as_it_is() -> None:
    belief = learn()
    small, even, large = at(belief, 0.6, 1.0, 1.6)
    assert belief.scale == pytest.approx(1.0, abs=0.02)
    assert small > 0.9
    assert even == pytest.approx(0.5, abs=0.05)
    assert large < 0.1


@pytest.mark.parametrize("factor", [0.3, 0.7, 1.0, 1.4, 3.0])
def test_measured_peaks_set_the_scale(factor: float) -> None:
    rows = [nearest(share * LIMIT) for share in (0.2, 0.4, 0.6, 0.8)]
    belief = learn(*(ran(r, peak=factor * float(LAYOUTS.memory_gib[r])) for r in rows))
    assert belief.scale == pytest.approx(factor, rel=0.04)
    assert at(belief, 0.85 / factor)[0] > 0.9
    assert at(belief, 1.15 / factor)[0] < 0.1


def test_running_out_lowers_the_chance_of_all_that_need_as_much_and_more() -> None:
    row = nearest(0.9 * LIMIT)
    before, after = at(learn(), 0.9, 1.0, 1.1), at(learn(ran_out(row)), 0.9, 1.0, 1.1)
    assert (after < before - 0.1).all()
    assert (after > 0.0).all()  # never lost for ever
    assert after[0] < 0.5


def test_running_without_a_reading_raises_it() -> None:
    row = nearest(1.1 * LIMIT)
    assert at(learn(ran(row, peak=None)), 1.1)[0] > at(learn(), 1.1)[0] + 0.2


def test_a_crash_and_a_running_trial_say_nothing_of_memory() -> None:
    strategy = LAYOUTS.lattice.strategy(3)
    silent = [
        (3, SearchTrial(strategy=strategy, state="failed")),
        (3, SearchTrial(strategy=strategy, state="running")),
    ]
    assert np.array_equal(learn(*silent).posterior, learn().posterior)


def test_the_chance_falls_with_the_estimate() -> None:
    belief = learn(ran(nearest(0.5 * LIMIT), peak=0.6 * LIMIT), ran_out(nearest(LIMIT)))
    probability = belief.probability_to_fit(np.sort(LAYOUTS.memory_gib))
    assert (np.diff(probability) <= 1e-12).all()


def test_hopeless_takes_both_a_failure_and_a_margin() -> None:
    none = np.zeros(0, dtype=np.int64)
    impossible = np.zeros(len(LAYOUTS))
    assert not hopeless(LAYOUTS, impossible, none).any()
    row = nearest(1.2 * LIMIT)
    ruled_out = hopeless(LAYOUTS, impossible, np.array([row]))
    assert np.array_equal(ruled_out, LAYOUTS.memory_gib > 1.25 * LAYOUTS.memory_gib[row])
    assert not hopeless(LAYOUTS, np.ones(len(LAYOUTS)), np.array([row])).any()


def test_a_sure_layout_carries_no_risk_and_a_hopeless_one_a_finite_one() -> None:
    sure, even, never = risk(np.array([1.0, 0.5, 0.0]))
    assert sure == 0.0
    assert 0.05 < even < never < 1.0
