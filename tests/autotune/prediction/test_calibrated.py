"""Predictions with intervals, of what is generally known and of what trials of a machine showed."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.calibration import Calibration
from autotune.prediction.strategy import predict
from autotune.resolution import machine_shape, strategy_shape
from autotune.schemas.predictions import Prediction
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.shapes import MachineShape
from search_spaces.catalog import load_machine
from search_spaces.errors import InvalidInput
from tests.autotune import records
from tests.autotune.prediction.calibrated import SLOWER, named, slow


def query(machine: str | MachineShape = "frontier", **changes: Any) -> PredictionQuery:
    strategy = strategy_shape(records.strategy(tp=1, pp=8, gas=64)).model_copy(update=changes)
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


def test_general_knowledge_has_intervals_and_says_that_it_rests_on_no_trial() -> None:
    answer = predict(query())
    low, median, high = figures(answer)
    assert low < median < high
    assert answer.calibration is None
    assert answer.fit_probability is not None
    assert answer.fits == (answer.fit_probability > 0.5)
    assert answer.memory_low_gib is not None
    assert answer.memory_high_gib is not None
    assert answer.memory_gib is not None
    assert answer.memory_low_gib < answer.memory_gib < answer.memory_high_gib


def test_trials_of_the_machine_move_and_narrow_a_prediction() -> None:
    calibration = slow()
    low, before, high = figures(predict(query()))
    answer = predict(query(), calibration, named(calibration))
    lower, after, higher = figures(answer)
    assert after / before == pytest.approx(SLOWER, rel=0.1)
    assert higher / lower < high / low
    assert answer.calibration == named(calibration)
    assert answer.calibration.simulated
    assert sum(answer.time_parts_s.values()) == pytest.approx(after)
    assert answer.tokens_per_s == pytest.approx(128 * 2048 / after)


def test_an_illegal_strategy_gets_no_figures_of_a_calibration_either() -> None:
    calibration = slow()
    answer = predict(query(tensor_parallel=5), calibration, named(calibration))
    assert not answer.legal
    assert answer.iteration_time_low_s is None
    assert answer.fit_probability is None
    assert answer.calibration is None


def test_a_calibration_of_another_machine_is_refused_with_both_names() -> None:
    calibration = slow()
    with pytest.raises(InvalidInput, match="of frontier, and this is about perlmutter") as refusal:
        predict(query("perlmutter"), calibration, named(calibration))
    assert (refusal.value.field, refusal.value.value) == ("calibration", "mine")
    assert "perlmutter" in refusal.value.valid


def test_the_same_name_with_other_figures_is_another_machine() -> None:
    more = machine_shape(load_machine("frontier")).model_copy(update={"memory_gib": 96.0})
    with pytest.raises(InvalidInput, match=r"frontier with memory_gib 64\.0"):
        predict(query(more), slow())


def test_what_a_calibration_does_not_depend_on_may_differ() -> None:
    fewer = machine_shape(load_machine("frontier")).model_copy(update={"max_nodes": 8})
    calibration: Calibration = slow()
    assert predict(query(fewer), calibration).fits
