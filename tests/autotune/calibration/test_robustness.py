"""What a calibration must bear: trials that are far off, few, alike, or absurd, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autotune.calibration import Calibration, Forecast, Observation
from autotune.cost_model import Parameters, perturbed
from search_spaces.machine import Machine
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
from tests.autotune.cost_model.examples import CPU, DGX_H100, FRONTIER, GPT_22B, LLAMA, TINY

HELD_OUT = SPACE[100:140]
WORLD = perturbed(GENERAL, seed=3)
SEEN = trials(SPACE[:10], WORLD)


def of(observations: Sequence[Observation]) -> Forecast:
    return forecast(Calibration.of(FRONTIER, observations), HELD_OUT)


def assert_sound(found: Forecast) -> None:
    """Finite, positive, ordered, a probability, and parts that add up."""
    for low, middle, high in (
        (found.iteration_time_low_s, found.iteration_time_s, found.iteration_time_high_s),
        (found.memory_low_gib, found.memory_gib, found.memory_high_gib),
    ):
        assert np.isfinite(high).all()
        assert (low > 0).all()
        assert (low <= middle).all()
        assert (middle <= high).all()
    assert ((found.fit_probability >= 0) & (found.fit_probability <= 1)).all()
    parts = np.sum(list(found.time_parts_s.values()), axis=0)
    np.testing.assert_allclose(parts, found.iteration_time_s, rtol=1e-9)
    parts = np.sum(list(found.memory_parts_gib.values()), axis=0)
    np.testing.assert_allclose(parts, found.memory_gib, rtol=1e-9)


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_one_trial_far_off_changes_little(factor: float) -> None:
    """Whichever of them it is (a node that throttles, a run that shared its network): always
    less than a mean of logarithms would change, mostly less than half of that."""
    plain = of(SEEN).iteration_time_s
    true = truth(HELD_OUT, WORLD)[0]
    uncalibrated = error(truth(HELD_OUT, GENERAL)[0], true)
    changes = []
    for at in range(0, len(SEEN), 3):
        spoiled = [*SEEN[:at], slower(SEEN[at], factor), *SEEN[at + 1 :]]
        predicted = of(spoiled).iteration_time_s
        changes.append(error(predicted, plain))
        assert error(predicted, true) < 0.5 * uncalibrated
    of_a_mean = abs(np.log(factor)) / len(SEEN)
    assert max(changes) < of_a_mean
    assert np.median(changes) < 0.5 * of_a_mean


def test_the_same_trials_give_the_same_forecast_in_any_order() -> None:
    plain, again, turned = of(SEEN), of(list(SEEN)), of(SEEN[::-1])
    for name in ("iteration_time_s", "iteration_time_high_s", "memory_gib", "fit_probability"):
        assert np.array_equal(getattr(again, name), getattr(plain, name))
        np.testing.assert_allclose(getattr(turned, name), getattr(plain, name), rtol=1e-6)


@pytest.mark.parametrize("value", [1e-9, 1e-3, 1e5, 1e9])
def test_an_absurd_trial_leaves_figures_finite(value: float) -> None:
    """Alone it moves little, and among others next to nothing."""
    absurd = replace(SEEN[0], iteration_time_s=value, peak_memory_gib=value)
    predicted = of([absurd])
    assert_sound(predicted)
    assert error(predicted.iteration_time_s, of([]).iteration_time_s) < 0.1
    among = of([absurd, *SEEN[1:]])
    assert_sound(among)
    assert error(among.iteration_time_s, of(SEEN).iteration_time_s) < 0.05
    assert error(among.memory_gib, of(SEEN).memory_gib) < 0.05


def test_one_trial() -> None:
    """Its own layout is known well from then on, the others a little better."""
    predicted = of(SEEN[:1])
    assert_sound(predicted)
    own = forecast(Calibration.of(FRONTIER, SEEN[:1]), SPACE[:1])
    assert own.iteration_time_s[0] == pytest.approx(SEEN[0].iteration_time_s, rel=0.03)
    assert own.reserved_gib[0] == pytest.approx(SEEN[0].peak_memory_gib, rel=0.03)
    true = truth(HELD_OUT, WORLD)[0]
    assert error(predicted.iteration_time_s, true) < error(of([]).iteration_time_s, true)


def test_one_trial_many_times() -> None:
    """Twelve equal observations: no singular matrix, and the layout known as it was measured."""
    repeated = [SEEN[0]] * 12
    assert_sound(of(repeated))
    own = forecast(Calibration.of(FRONTIER, repeated), SPACE[:1])
    assert own.iteration_time_s[0] == pytest.approx(SEEN[0].iteration_time_s, rel=0.005)
    spread = own.iteration_time_high_s[0] / own.iteration_time_low_s[0]
    assert 1 < spread < 1.1


def test_trials_that_disagree() -> None:
    """The same layout once at half and once at twice its time: something between."""
    both = [slower(SEEN[0], 0.5), slower(SEEN[0], 2.0)]
    assert_sound(of(both))
    own = forecast(Calibration.of(FRONTIER, both), SPACE[:1])
    assert SEEN[0].iteration_time_s is not None
    assert 0.4 < own.iteration_time_s[0] / SEEN[0].iteration_time_s < 2.5


@pytest.mark.parametrize(
    "seen",
    [
        [],
        [replace(each, peak_memory_gib=None, fitted=None) for each in SEEN],
        [replace(each, iteration_time_s=None) for each in SEEN],
        [replace(each, iteration_time_s=None, peak_memory_gib=None) for each in SEEN],
        [Observation(transformer=GPT_22B, strategy=SPACE[0])],
        [replace(SEEN[0], iteration_time_s=None, peak_memory_gib=None, fitted=False), SEEN[1]],
    ],
    ids=["nothing", "times", "memory", "labels", "an empty one", "one failed, one ran"],
)
def test_whatever_was_observed(seen: list[Observation]) -> None:
    """Times, peaks and labels may each be missing."""
    assert_sound(of(seen))


def test_time_says_nothing_of_memory_and_memory_nothing_of_time() -> None:
    general = of([])
    timed = of([replace(each, peak_memory_gib=None, fitted=None) for each in SEEN])
    np.testing.assert_array_equal(timed.memory_gib, general.memory_gib)
    np.testing.assert_array_equal(timed.fit_probability, general.fit_probability)
    remembered = of([replace(each, iteration_time_s=None) for each in SEEN])
    np.testing.assert_array_equal(remembered.iteration_time_s, general.iteration_time_s)


def test_many_trials_at_once() -> None:
    predicted = of(trials(SPACE[200:320], WORLD) + trials(SPACE[:30], WORLD, transformer=LLAMA))
    assert_sound(predicted)
    assert error(predicted.iteration_time_s, truth(HELD_OUT, WORLD)[0]) < 0.03


def test_no_strategies_to_forecast() -> None:
    nothing = lattice(SPACE[:1]).take(np.array([], dtype=np.int64))
    empty = Calibration.of(FRONTIER, SEEN).forecast(GPT_22B, nothing)
    assert empty.iteration_time_s.shape == empty.memory_high_gib.shape == (0,)
    assert empty.fit_probability.shape == (0,)


@pytest.mark.parametrize("machine", [FRONTIER, DGX_H100, CPU])
def test_what_is_generally_known_of_a_machine(machine: Machine) -> None:
    """Nothing observed: the formulas with the constants of its kind."""
    calibration = Calibration.of(machine)
    transformer = TINY if machine is CPU else GPT_22B
    layouts = [replace(each, precision="fp32") for each in SPACE[:20]]
    predicted = forecast(calibration, layouts, transformer=transformer)
    assert_sound(predicted)
    times, sizes = truth(
        layouts, Parameters.default(machine), transformer=transformer, machine=machine
    )
    np.testing.assert_allclose(predicted.iteration_time_s, times, rtol=1e-9)
    np.testing.assert_allclose(predicted.reserved_gib, sizes, rtol=1e-9)
    assert calibration.parameters == Parameters.default(machine)
    for constant in calibration.constants:
        assert constant.value == pytest.approx(constant.prior)
        assert constant.spread == pytest.approx(constant.prior_spread)


def test_a_calibration_keeps_what_it_rests_on() -> None:
    calibration = Calibration.of(FRONTIER, SEEN, software="Megatron-DeepSpeed of May")
    assert calibration.observations == tuple(SEEN)
    assert calibration.software == "Megatron-DeepSpeed of May"
    assert calibration.machine is FRONTIER
    assert Calibration.of(FRONTIER).software == ""
