"""How much earlier trials count, which are chosen, and what they are worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest

from autotune.calibration import Calibration
from autotune.calibration.calibration import general_knowledge
from autotune.calibration.history import EarlierTrial, forecast_errors, most_informative, weight_of
from search_spaces.catalog import load_model
from search_spaces.transformer import Transformer
from tests.autotune.calibration.examples import (
    GENERAL,
    SPACE,
    error,
    forecast,
    lattice,
    slower,
    trials,
    truth,
)
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B

NOW = {"python": "3.11.4", "torch": "2.5.1+rocm6.2", "deepspeed": "0.15.4"}
SMALL, LARGE = load_model("gpt-1.4b"), load_model("gpt-175b")


def weight(age_days: float = 0.0, **changed: str) -> float:
    return weight_of(NOW | changed, among=NOW, age_days=age_days)


def test_a_trial_of_the_same_stack_and_day_counts_whole() -> None:
    assert weight() == 1.0
    assert weight(python="3.12.1") == 1.0, "which Python starts a trial leaves its time alone"


def test_the_further_the_versions_the_less_a_trial_counts() -> None:
    falling = [
        weight(),
        weight(torch="2.5.0+rocm6.2"),
        weight(torch="2.4.1+rocm6.2"),
        weight(torch="2.4.1+rocm6.2", deepspeed="0.14.4"),
        weight(torch="2.1.0+rocm6.2"),
        weight(torch="1.13.1+rocm6.2"),
    ]
    assert falling == sorted(set(falling), reverse=True)
    assert weight(torch="2.5.1+rocm6.1") < weight()
    assert weight(torch="2.5.1+cu124") < weight(torch="2.5.1+rocm6.1")
    assert weight_of({}, among=NOW, age_days=0.0) == weight(torch="")
    assert weight_of({}, among={}, age_days=0.0) == 1.0


def test_the_older_the_less_a_trial_counts() -> None:
    assert weight(age_days=365.25) == pytest.approx(0.5)
    assert 1.0 > weight(age_days=30.0) > weight(age_days=365.25) > weight(age_days=2000.0) > 0.0


def earlier(
    transformer: Transformer, count: int, *, start: int = 0, versions: Mapping[str, str] = NOW
) -> list[EarlierTrial]:
    return [
        EarlierTrial(transformer=transformer, strategy=each, versions=versions, age_days=0.0)
        for each in SPACE[start : start + count]
    ]


def chosen(
    given: list[EarlierTrial], weights: list[float] | None = None, *, most: int
) -> list[int]:
    return most_informative(
        given,
        weights or [1.0] * len(given),
        transformer=GPT_22B,
        lattice=lattice(SPACE),
        most=most,
    )


def test_few_are_all_chosen_and_many_are_cut() -> None:
    given = earlier(GPT_22B, 40)
    assert sorted(chosen(given, most=60)) == list(range(40))
    assert len(set(chosen(given, most=25))) == 25
    assert chosen([], most=25) == []


def test_most_are_of_the_model_and_a_few_of_all_others() -> None:
    given = [*earlier(LARGE, 100), *earlier(GPT_22B, 100), *earlier(SMALL, 100)]
    found = Counter(given[place].transformer.name for place in chosen(given, most=60))
    assert found["gpt-22b"] >= 40
    assert min(found["gpt-175b"], found["gpt-1.4b"]) >= 5


def test_those_that_count_more_come_first_and_repetitions_last() -> None:
    old_and_new = [*earlier(GPT_22B, 50), *earlier(GPT_22B, 50)]
    weights = [0.1] * 50 + [1.0] * 50
    assert set(chosen(old_and_new, weights, most=50)) == set(range(50, 100))
    repeated = [*earlier(GPT_22B, 1), *earlier(GPT_22B, 20)]
    assert len({repeated[place].strategy for place in chosen(repeated, most=20)}) == 20


def test_what_counts_little_gives_way_to_what_counts_whole() -> None:
    """Twenty trials that are a third slower, against five: each is believed by its weight."""
    right = trials(SPACE[:5], GENERAL)
    wrong = [slower(each, 4 / 3) for each in trials(SPACE[20:40], GENERAL, seed=1)]
    true, _ = truth(SPACE[60:80], GENERAL)
    errors = []
    for weight in (1.0, 0.1, 0.01):
        weighed = [replace(each, weight=weight) for each in wrong]
        calibration = Calibration.of(FRONTIER, [*right, *weighed])
        errors.append(error(forecast(calibration, SPACE[60:80]).iteration_time_s, true))
    assert errors[0] > 0.15
    assert errors[2] < errors[1] < errors[0]
    assert errors[2] < 0.1


def test_earlier_trials_are_worth_the_error_that_they_take_away() -> None:
    """On a machine that is unlike its kind, trials of another model foretell this one's."""
    unlike = replace(GENERAL, gemm_efficiency=0.4, intra_node_efficiency=0.3)
    of_another = trials(SPACE[:20], unlike, transformer=SMALL)
    measured = trials(SPACE[30:50], unlike, seed=1)
    known = general_knowledge(FRONTIER)
    worth = forecast_errors(Calibration.of(FRONTIER, of_another), measured, without=known)
    assert worth is not None
    assert worth.trials == 20
    assert worth.given < 0.5 * worth.without
    out_of_memory = [replace(each, iteration_time_s=None, fitted=False) for each in measured]
    earlier = Calibration.of(FRONTIER, of_another)
    assert forecast_errors(earlier, out_of_memory, without=known) is None
