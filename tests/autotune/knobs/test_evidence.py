"""What starts say of noise and gains."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.knobs.evidence import KnobEvidence

NULLS = {f"null_{place}": [1.0 + 0.002 * wobble] for place, wobble in enumerate((-1, 0, 1, 1, -1))}


def test_repeated_starts_of_anything_show_the_noise() -> None:
    quiet = KnobEvidence.of([1.0, 1.001], {"a": [1.0, 1.001, 0.9995, 1.0005]})
    loud = KnobEvidence.of([1.0, 1.03], {"a": [1.0, 1.03, 0.985, 1.015]})
    assert quiet.noise < 0.003 < 0.01 < loud.noise
    assert loud.noise_floor == pytest.approx(2.77 * loud.noise, rel=0.01)


def test_a_pair_of_baselines_is_enough_for_a_noise_floor() -> None:
    evidence: KnobEvidence[str] = KnobEvidence.of([1.0, 1.002], {})
    assert 0.001 < evidence.noise < 0.006


def test_a_gain_is_shrunken_and_its_interval_narrows() -> None:
    one = KnobEvidence.of([1.0, 1.002, 0.998], {"a": [0.99], **NULLS}).effects["a"]
    six = KnobEvidence.of([1.0, 1.002, 0.998], {"a": [0.99, 0.992, 0.988] * 2, **NULLS}).effects[
        "a"
    ]
    assert 0.0 < one.gain < six.gain < 1.0 / 0.99 - 1.0
    assert one.faster < 0.99 < six.faster
    widths = [effect.interval[1] - effect.interval[0] for effect in (one, six)]
    assert widths[1] < widths[0]
    assert six.interval[0] < six.gain < six.interval[1]


def test_a_loss_is_as_certain_as_a_gain() -> None:
    effect = KnobEvidence.of([1.0, 1.002, 0.998], {"a": [1.05, 1.051], **NULLS}).effects["a"]
    assert effect.slower > 0.999
    assert effect.saving < 1e-6
    assert effect.gain == pytest.approx(1.0 / 1.05 - 1.0, abs=0.005)
    assert effect.interval[1] < 0.0


def test_no_knob_that_does_nothing_looks_faster() -> None:
    effects = KnobEvidence.of([1.0, 1.002, 0.998], NULLS).effects
    assert max(effect.faster for effect in effects.values()) < 0.2
    assert all(effect.interval[0] <= 0.0 <= effect.interval[1] for effect in effects.values())


def test_knobs_that_all_gain_do_not_move_the_baseline() -> None:
    evidence = KnobEvidence.of([1.0, 1.001, 0.999], {place: [0.95, 0.951] for place in range(8)})
    assert min(effect.faster for effect in evidence.effects.values()) > 0.999


def test_intervals_hold_as_often_as_they_say() -> None:
    """Effects and noise drawn from what is believed before any start."""
    generator = np.random.default_rng(0)
    held = []
    for _ in range(60):
        noise = 0.0025 * np.exp(0.9 * generator.standard_normal())
        size = generator.exponential(0.07, 10) * np.where(generator.random(10) < 0.72, 1.0, -1.0)
        gains = np.where(generator.random(10) < 0.8, 0.0, size)
        base = np.exp(noise * generator.standard_normal(3))
        times = np.exp(-gains + noise * generator.standard_normal((2, 10)))
        effects = KnobEvidence.of(base.tolist(), dict(enumerate(times.T.tolist()))).effects
        for knob in np.flatnonzero(gains).tolist():
            low, high = effects[knob].interval
            held.append(low <= np.expm1(gains[knob]) <= high)
    assert 0.7 < np.mean(held) < 0.9
