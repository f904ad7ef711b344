"""Predictions with intervals, of what is generally known and of what trials of a machine showed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.prediction.strategy import predict
from autotune.schemas.predictions import Prediction
from autotune.schemas.requests import PredictionQuery
from search_spaces.machine import Machine
from tests.autotune import records
from tests.autotune.prediction.calibrated import SLOWER, slow


def query(machine: str | Machine = "frontier", **changes: Any) -> PredictionQuery:
    strategy = replace(records.strategy(tp=1, pp=8, gas=64), **changes)
    return PredictionQuery(model="gpt-22b", machine=machine, strategy=strategy)


def figures(answer: Prediction) -> tuple[float, float, float]:
    """A step's time: low, median, high."""
    results = (
        answer.iteration_time_low_s,
        answer.iteration_time_s,
        answer.iteration_time_high_s,
    )
    low, median, high = (each for each in results if each is not None)
    return low, median, high


def test_general_knowledge_has_intervals_and_names_no_trial() -> None:
    answer = predict(query())
    low, median, high = figures(answer)
    assert low < median < high
    assert answer.fit_probability is not None
    assert answer.fits == (answer.fit_probability > 0.5)
    assert answer.memory_low_gib is not None
    assert answer.memory_high_gib is not None
    assert answer.memory_gib is not None
    assert answer.memory_low_gib < answer.memory_gib < answer.memory_high_gib


def test_trials_of_the_machine_move_and_narrow_a_prediction() -> None:
    calibration = slow()
    low, before, high = figures(predict(query()))
    answer = predict(query(), calibration)
    lower, after, higher = figures(answer)
    assert after / before == pytest.approx(SLOWER, rel=0.1)
    assert higher / lower < high / low
    assert sum(answer.time_parts_s.values()) == pytest.approx(after)
    assert answer.tokens_per_s == pytest.approx(128 * 2048 / after)


def test_an_illegal_strategy_gets_no_calibrated_figures() -> None:
    calibration = slow()
    answer = predict(query(tensor_parallel=5), calibration)
    assert not answer.legal
    assert answer.iteration_time_low_s is None
    assert answer.fit_probability is None
