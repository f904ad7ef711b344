"""Earlier trials count as far as they predict a campaign's own first ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from autotune.calibration import Calibration, Observation
from autotune.calibration.observations import time_sample
from autotune.calibration.relevance import discounted, relevance
from tests.autotune.calibration.examples import GENERAL, SPACE, trials
from tests.autotune.cost_model.examples import FRONTIER

EARLIER, OWN = SPACE[:24], SPACE[24:28]


def factor(earlier: list[Observation], own: list[Observation]) -> float:
    @cache
    def given(each: float) -> Calibration:
        return Calibration.of(FRONTIER, discounted(earlier, each))

    return relevance(lambda each: given(each).time, time_sample(own, FRONTIER))


def test_trials_of_a_like_stack_count_in_full() -> None:
    slow = replace(GENERAL, gemm_efficiency=0.7 * float(GENERAL.gemm_efficiency))
    assert factor(trials(EARLIER, slow), trials(OWN, slow, seed=1)) == 1.0
    assert factor(trials(EARLIER, slow), []) == 1.0


def test_trials_that_predict_the_opposite_are_left_out() -> None:
    """Those of a stack three times as slow where there is tensor parallelism."""
    unlike = [
        replace(
            each,
            iteration_time_s=(each.iteration_time_s or 0.0)
            * 3.0 ** (each.strategy.tensor_parallel > 1),
        )
        for each in trials(EARLIER, GENERAL)
    ]
    assert factor(unlike, trials(OWN, GENERAL, seed=1)) == 0.0


@pytest.mark.parametrize("share", [0.1, 0.0])
def test_discounted_times_leave_memory_as_it_is(share: float) -> None:
    every = trials(EARLIER, GENERAL)
    whole, less = (Calibration.of(FRONTIER, discounted(every, each)) for each in (1.0, share))
    assert np.array_equal(whole.memory_sample.log_value, less.memory_sample.log_value)
    sample = time_sample(discounted(every, share), FRONTIER)
    assert len(sample.log_value) == (len(every) if share else 0)
    assert np.all(sample.weight == share)
